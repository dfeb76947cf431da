#include <stdio.h>

unsigned long sum_of_words(const char *text);

int main(void) {
    printf("%lu\n", sum_of_words("1 2 x 39"));
    return 0;
}
