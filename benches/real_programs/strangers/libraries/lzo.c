// liblzo2-dev: lzo2
#include <lzo/lzo1x.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    static unsigned char text[40000], packed[50000], back[40000], work[LZO1X_1_MEM_COMPRESS], large[LZO1X_999_MEM_COMPRESS];
    lzo_uint size, best, back_size = sizeof back;
    if (lzo_init() != LZO_E_OK) return 1;
    for (int i = 0; i < 40000; i++) text[i] = i * i / 11 % 23;
    lzo1x_1_compress(text, sizeof text, packed, &size, work);
    lzo1x_999_compress(text, sizeof text, packed, &best, large);
    lzo1x_decompress_safe(packed, best, back, &back_size, NULL);
    printf("%lu %lu %lu %d\n", size, best, back_size, memcmp(text, back, sizeof text));
    return 0;
}
