/* Needs thread-local storage. */
_Thread_local int mine = 3;
int main(void) { return mine; }
