// libzopfli-dev: zopfli; m
#include <stdio.h>
#include <zopfli/zopfli.h>

int main(void) {
    static unsigned char text[3000];
    unsigned char *packed = NULL;
    size_t size = 0;
    unsigned sum = 0;
    ZopfliOptions options;
    for (int i = 0; i < 3000; i++) text[i] = i * i / 13 % 61;
    ZopfliInitOptions(&options);
    ZopfliCompress(&options, ZOPFLI_FORMAT_GZIP, text, sizeof text, &packed, &size);
    for (size_t i = 0; i < size; i++) sum = sum * 31 + packed[i];
    printf("%zu %08x\n", size, sum);
    return 0;
}
