// libdeflate-dev: deflate
#include <libdeflate.h>
#include <stdio.h>

int main(void) {
    static unsigned char text[60000], packed[70000], back[60000];
    for (int i = 0; i < 60000; i++) text[i] = i * i / 13 % 61;
    for (int level = 1; level <= 12; level += 11) {
        size_t size = libdeflate_zlib_compress(libdeflate_alloc_compressor(level), text, sizeof text, packed, sizeof packed), size_back;
        int result = libdeflate_zlib_decompress(libdeflate_alloc_decompressor(), packed, size, back, sizeof back, &size_back);
        printf("%zu %d %zu %08x %08x\n", size, result, size_back, libdeflate_crc32(0, back, size_back), libdeflate_adler32(1, back, size_back));
    }
    return 0;
}
