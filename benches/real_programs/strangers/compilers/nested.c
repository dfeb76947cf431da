// The address of a nested function is a trampoline on the stack, which has to be executable.
#include <stdio.h>
#include <stdlib.h>

static int compare(int (*order)(const void *, const void *)) {
    int values[] = {3, 1, 2};
    qsort(values, 3, sizeof *values, order);
    return values[0] * 100 + values[1] * 10 + values[2];
}

int main(int argc, char **argv) {
    (void)argv;
    int sign = argc > 5 ? 1 : -1;
    int order(const void *left, const void *right) { return sign * (*(const int *)left - *(const int *)right); }
    printf("%d\n", compare(order));
    return 0;
}
