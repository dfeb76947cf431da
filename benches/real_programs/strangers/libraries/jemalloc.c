// libjemalloc-dev: jemalloc; m pthread
#include <jemalloc/jemalloc.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    size_t arenas, size = sizeof arenas;
    printf("%d\n", mallctl("opt.narenas", &arenas, &size, NULL, 0));
    void *block = mallocx(1000, MALLOCX_ALIGN(4096) | MALLOCX_ZERO);
    printf("%zu %d\n", sallocx(block, 0), (int)((size_t)block & 4095));
    dallocx(block, 0);
    // The C library allocates this block, with whichever malloc counts.
    char *copy = strdup("text");
    printf("%s %zu\n", copy, malloc_usable_size(copy));
    free(copy);
    return 0;
}
