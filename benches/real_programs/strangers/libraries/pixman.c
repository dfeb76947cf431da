// libpixman-1-dev: pixman-1; m pthread
#include <pixman.h>
#include <stdio.h>

int main(void) {
    enum { W = 64 };
    static uint32_t pixels[W * W], source[W * W];
    unsigned sum = 0;
    for (int i = 0; i < W * W; i++) source[i] = 0x80000000u | i * 2654435761u >> 9;
    pixman_image_t *to = pixman_image_create_bits(PIXMAN_a8r8g8b8, W, W, pixels, W * 4);
    pixman_image_t *from = pixman_image_create_bits(PIXMAN_a8r8g8b8, W, W, source, W * 4);
    pixman_transform_t turn;
    pixman_transform_init_rotate(&turn, pixman_double_to_fixed(0.8), pixman_double_to_fixed(0.6));
    pixman_image_set_transform(from, &turn);
    pixman_image_set_filter(from, PIXMAN_FILTER_BILINEAR, NULL, 0);
    pixman_image_composite32(PIXMAN_OP_OVER, from, NULL, to, 0, 0, 0, 0, 0, 0, W, W);
    pixman_image_composite32(PIXMAN_OP_SCREEN, to, NULL, to, 0, 0, 0, 0, 3, 5, W - 8, W - 8);
    for (int i = 0; i < W * W; i++) sum = sum * 31 + pixels[i];
    printf("%08x\n", sum);
    return 0;
}
