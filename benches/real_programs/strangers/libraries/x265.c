// libx265-dev libnuma-dev: x265; m pthread dl numa stdc++
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <x265.h>

int main(void) {
    static unsigned char luma[64 * 64], chroma[32 * 32];
    x265_param *settings = x265_param_alloc();
    x265_nal *units;
    uint32_t count;
    unsigned sum = 0, size = 0;
    x265_param_default_preset(settings, "ultrafast", "zerolatency");
    settings->sourceWidth = settings->sourceHeight = 64, settings->fpsNum = 25, settings->fpsDenom = 1, settings->logLevel = X265_LOG_NONE;
    settings->bEmitInfoSEI = 0;
    x265_encoder *encoder = x265_encoder_open(settings);
    x265_picture *picture = x265_picture_alloc();
    x265_picture_init(settings, picture);
    for (int i = 0; i < 64 * 64; i++) luma[i] = i * 3 >> 5;
    memset(chroma, 90, sizeof chroma);
    picture->planes[0] = luma, picture->planes[1] = picture->planes[2] = chroma;
    picture->stride[0] = 64, picture->stride[1] = picture->stride[2] = 32;
    for (int frame = 0; frame < 3; frame++) {
        x265_encoder_encode(encoder, &units, &count, frame < 2 ? picture : NULL, NULL);
        for (unsigned u = 0; u < count; u++)
            for (unsigned i = 0; i < units[u].sizeBytes; i++) sum = sum * 31 + units[u].payload[i], size++;
    }
    printf("%u %08x\n", size, sum);
    x265_encoder_close(encoder);
    x265_cleanup();
    return 0;
}
