#include <stdio.h>

extern long counter;
extern const char text[];
long sum_of(const long *values, long count);
long doubled(long value) { return value * 2; }

int main(void) {
    long values[] = {1, 2, 3, 4};
    printf("%ld", sum_of(values, 4));
    printf(" %ld %s\n", counter, text);
    return 0;
}
