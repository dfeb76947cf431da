// liblz4-dev: lz4
#include <lz4frame.h>
#include <lz4hc.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    static char text[50000], packed[60000], back[50000];
    for (int i = 0; i < 50000; i++) text[i] = "the quick brown fox"[i * i / 7 % 19];
    int fast = LZ4_compress_default(text, packed, sizeof text, sizeof packed);
    int high = LZ4_compress_HC(text, packed, sizeof text, sizeof packed, 12);
    int size = LZ4_decompress_safe(packed, back, high, sizeof back);
    size_t frame = LZ4F_compressFrame(packed, sizeof packed, text, sizeof text, NULL);
    printf("%d %d %d %d %zu\n", fast, high, size, memcmp(text, back, sizeof text), frame);
    return 0;
}
