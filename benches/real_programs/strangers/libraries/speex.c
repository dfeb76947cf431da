// libspeex-dev: speex; m
#include <speex/speex.h>
#include <stdio.h>

int main(void) {
    SpeexBits bits;
    void *encoder = speex_encoder_init(&speex_wb_mode);
    unsigned sum = 0;
    int total = 0, quality = 7;
    speex_bits_init(&bits);
    speex_encoder_ctl(encoder, SPEEX_SET_QUALITY, &quality);
    for (int frame = 0; frame < 30; frame++) {
        float samples[320];
        char packet[400];
        for (int i = 0; i < 320; i++) samples[i] = (i * (frame + 5) % 173 - 86) * 100;
        speex_bits_reset(&bits);
        speex_encode(encoder, samples, &bits);
        int size = speex_bits_write(&bits, packet, sizeof packet);
        for (int i = 0; i < size; i++) sum = sum * 31 + (unsigned char)packet[i];
        total += size;
    }
    printf("%d %08x\n", total, sum);
    return 0;
}
