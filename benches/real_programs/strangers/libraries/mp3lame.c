// libmp3lame-dev: mp3lame; m
#include <lame/lame.h>
#include <stdio.h>

int main(void) {
    static short samples[30000];
    static unsigned char packed[60000];
    unsigned sum = 0;
    for (int i = 0; i < 30000; i++) samples[i] = (i * 23 % 500 - 250) * 60;
    lame_t lame = lame_init();
    lame_set_num_channels(lame, 1), lame_set_in_samplerate(lame, 44100), lame_set_quality(lame, 2);
    lame_init_params(lame);
    int size = lame_encode_buffer(lame, samples, NULL, 30000, packed, sizeof packed);
    size += lame_encode_flush(lame, packed + size, sizeof packed - size);
    for (int i = 0; i < size; i++) sum = sum * 31 + packed[i];
    printf("%d %08x %s\n", size, sum, get_lame_version());
    return 0;
}
