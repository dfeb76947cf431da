#include "libshared.h"
#include <stdio.h>

int main(void) {
    int count = Words("the cat and the dog");
    printf("%d\n", count);
    return count;
}
