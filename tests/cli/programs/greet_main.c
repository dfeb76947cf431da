/* Calls the library. */
int greet_count(void);
int main(void) { return greet_count(); }
