// libopus-dev: opus; m
#include <opus/opus.h>
#include <stdio.h>

int main(void) {
    int error, total = 0;
    unsigned sum = 0;
    OpusEncoder *encoder = opus_encoder_create(48000, 2, OPUS_APPLICATION_AUDIO, &error);
    OpusDecoder *decoder = opus_decoder_create(48000, 2, &error);
    for (int frame = 0; frame < 20; frame++) {
        opus_int16 samples[960 * 2], back[960 * 2];
        unsigned char packet[4000];
        for (int i = 0; i < 960 * 2; i++) samples[i] = (i * (frame + 3) % 311 - 155) * 90;
        int size = opus_encode(encoder, samples, 960, packet, sizeof packet);
        total += size + opus_decode(decoder, packet, size, back, 960, 0);
        for (int i = 0; i < size; i++) sum = sum * 31 + packet[i];
    }
    printf("%d %08x\n", total, sum);
    return 0;
}
