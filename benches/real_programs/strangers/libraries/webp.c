// libwebp-dev: webp; m pthread
#include <stdio.h>
#include <stdlib.h>
#include <webp/decode.h>
#include <webp/encode.h>

int main(void) {
    static uint8_t pixels[64 * 64 * 3];
    uint8_t *packed, *back;
    unsigned sum = 0;
    int width, height;
    for (int i = 0; i < 64 * 64 * 3; i++) pixels[i] = i * i >> 9;
    size_t lossy = WebPEncodeRGB(pixels, 64, 64, 192, 60, &packed);
    back = WebPDecodeRGB(packed, lossy, &width, &height);
    for (int i = 0; i < 64 * 64 * 3; i++) sum = sum * 31 + back[i];
    size_t lossless = WebPEncodeLosslessRGB(pixels, 64, 64, 192, &packed);
    printf("%zu %zu %d x %d %08x\n", lossy, lossless, width, height, sum);
    return 0;
}
