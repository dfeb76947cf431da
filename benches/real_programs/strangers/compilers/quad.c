#include <quadmath.h>
#include <stdio.h>

int main(void) {
    char text[60];
    quadmath_snprintf(text, sizeof text, "%.30Qf", expq(1.0Q) * sqrtq(2.0Q) / 3.0Q);
    puts(text);
    return 0;
}
