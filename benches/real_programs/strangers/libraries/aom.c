// libaom-dev: aom; m pthread
#include <aom/aom_encoder.h>
#include <aom/aomcx.h>
#include <stdio.h>

int main(void) {
    aom_codec_enc_cfg_t settings;
    aom_codec_ctx_t codec;
    aom_image_t image;
    unsigned sum = 0, size = 0;
    aom_codec_enc_config_default(aom_codec_av1_cx(), &settings, AOM_USAGE_REALTIME);
    settings.g_w = 64, settings.g_h = 64, settings.g_threads = 1, settings.g_lag_in_frames = 0;
    printf("%d\n", aom_codec_enc_init(&codec, aom_codec_av1_cx(), &settings, 0));
    aom_codec_control(&codec, AOME_SET_CPUUSED, 8);
    aom_img_alloc(&image, AOM_IMG_FMT_I420, 64, 64, 16);
    for (int plane = 0; plane < 3; plane++)
        for (int i = 0; i < (plane ? 32 * 32 : 64 * 64); i++)
            image.planes[plane][i / (plane ? 32 : 64) * image.stride[plane] + i % (plane ? 32 : 64)] = i * 3 >> 4;
    aom_codec_encode(&codec, &image, 0, 1, 0), aom_codec_encode(&codec, NULL, 0, 1, 0);
    aom_codec_iter_t at = NULL;
    for (const aom_codec_cx_pkt_t *packet; (packet = aom_codec_get_cx_data(&codec, &at));)
        for (size_t i = 0; i < packet->data.frame.sz; i++) sum = sum * 31 + ((unsigned char *)packet->data.frame.buf)[i], size++;
    printf("%u %08x\n", size, sum);
    aom_codec_destroy(&codec);
    return 0;
}
