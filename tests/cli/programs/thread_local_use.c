/* Refers to thread-local storage of somebody else's. */
extern _Thread_local int theirs;
int main(void) { return theirs; }
