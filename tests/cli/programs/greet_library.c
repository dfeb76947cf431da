/* The code of a shared library. */
int greet_count(void) { return 12; }
