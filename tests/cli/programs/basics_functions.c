/* Calls through pointers, variadic calls, a static counter. */
#include "basics.h"
#include <math.h>
#include <stdio.h>

static function *const table[] = {sin, cos, exp};

double apply(function *f, double x) { return f(f(x)); }
function *chosen(int which) { return table[which]; }

const char *describe(int i, double d, char c, const char *s) {
    static char text[64];
    snprintf(text, sizeof text, "%d/%.1f/%c/%s", i, d, c, s);
    return text;
}

void count_up(void) {
    static int calls;
    counter += ++calls;
}
