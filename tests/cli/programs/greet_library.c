/* A shared library's worth of code. */
int greet_count(void) { return 12; }
