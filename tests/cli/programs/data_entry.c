#include <stdio.h>

/* Prints, so that a run of this program is seen even if its entry is never called. */
__attribute__((constructor)) static void initialise(void) { puts("initialised"); }

/* `main_data` is data where a program has a function. */
int main_data = 1;
int entry(int argc, char **argv) { return argc + (argv[argc] == 0 ? 60 : 0); }
