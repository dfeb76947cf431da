// libvpx-dev: vpx; m pthread
#include <stdio.h>
#include <string.h>
#include <vpx/vp8cx.h>
#include <vpx/vpx_encoder.h>

int main(void) {
    vpx_codec_enc_cfg_t settings;
    vpx_codec_ctx_t codec;
    vpx_image_t image;
    unsigned sum = 0, size = 0;
    vpx_codec_enc_config_default(vpx_codec_vp9_cx(), &settings, 0);
    settings.g_w = 64, settings.g_h = 64, settings.g_threads = 1;
    vpx_codec_enc_init(&codec, vpx_codec_vp9_cx(), &settings, 0);
    vpx_img_alloc(&image, VPX_IMG_FMT_I420, 64, 64, 1);
    for (int frame = 0; frame < 4; frame++) {
        for (int i = 0; i < 64 * 64; i++) image.planes[0][i / 64 * image.stride[0] + i % 64] = i * (frame + 2) >> 5;
        for (int plane = 1; plane < 3; plane++)
            for (int y = 0; y < 32; y++) memset(image.planes[plane] + y * image.stride[plane], 100 + y, 32);
        vpx_codec_encode(&codec, frame < 3 ? &image : NULL, frame, 1, 0, VPX_DL_GOOD_QUALITY);
        vpx_codec_iter_t at = NULL;
        for (const vpx_codec_cx_pkt_t *packet; (packet = vpx_codec_get_cx_data(&codec, &at));)
            for (size_t i = 0; i < packet->data.frame.sz; i++) sum = sum * 31 + ((unsigned char *)packet->data.frame.buf)[i], size++;
    }
    printf("%u %08x\n", size, sum);
    return 0;
}
