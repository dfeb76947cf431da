// libblosc-dev: blosc lz4 snappy zstd z; pthread
#include <blosc.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    static int data[100000], back[100000];
    static char packed[500000];
    for (int i = 0; i < 100000; i++) data[i] = i * i % 1009;
    blosc_init();
    blosc_set_nthreads(2);
    for (const char *const *name = (const char *[]){"blosclz", "lz4", "zlib", "zstd", NULL}; *name; name++) {
        blosc_set_compressor(*name);
        int size = blosc_compress(5, 1, 4, sizeof data, data, packed, sizeof packed);
        int size_back = blosc_decompress(packed, back, sizeof back);
        printf("%s %d %d %d\n", *name, size, size_back, memcmp(data, back, sizeof data));
    }
    blosc_destroy();
    return 0;
}
