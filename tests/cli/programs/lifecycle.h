#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern const char *mode;
static inline int is(const char *name) { return !strcmp(mode, name); }
static inline void say(const char *text) { printf("%s\n", text); }
void deep(int levels);
