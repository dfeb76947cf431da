// libx264-dev: x264; m pthread dl
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <x264.h>

int main(void) {
    x264_param_t settings;
    x264_picture_t in, out;
    x264_nal_t *units;
    unsigned sum = 0, size = 0;
    int count;
    x264_param_default_preset(&settings, "medium", "zerolatency");
    settings.i_width = 64, settings.i_height = 64, settings.i_threads = 1, settings.i_log_level = X264_LOG_NONE, settings.i_csp = X264_CSP_I420;
    x264_t *encoder = x264_encoder_open(&settings);
    x264_picture_alloc(&in, X264_CSP_I420, 64, 64);
    for (int frame = 0; frame < 3; frame++) {
        for (int i = 0; i < 64 * 64; i++) in.img.plane[0][i] = i * (frame + 2) >> 5;
        memset(in.img.plane[1], 90, 32 * 32), memset(in.img.plane[2], 160, 32 * 32);
        in.i_pts = frame;
        int bytes = x264_encoder_encode(encoder, &units, &count, &in, &out);
        for (int i = 0; i < bytes; i++) sum = sum * 31 + units[0].p_payload[i];
        size += bytes;
    }
    printf("%u %08x\n", size, sum);
    x264_encoder_close(encoder);
    return 0;
}
