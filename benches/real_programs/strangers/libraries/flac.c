// libflac-dev: FLAC ogg; m
#include <FLAC/stream_encoder.h>
#include <stdio.h>

static unsigned sum, size;

static FLAC__StreamEncoderWriteStatus keep(const FLAC__StreamEncoder *encoder, const FLAC__byte bytes[], size_t count,
                                           unsigned samples, unsigned frame, void *data) {
    (void)encoder, (void)samples, (void)frame, (void)data;
    for (size_t i = 0; i < count; i++) sum = sum * 31 + bytes[i];
    size += count;
    return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
}

int main(void) {
    static FLAC__int32 samples[20000];
    for (int i = 0; i < 20000; i++) samples[i] = (i * 37 % 2000 - 1000) * (i / 100 % 7);
    FLAC__StreamEncoder *encoder = FLAC__stream_encoder_new();
    FLAC__stream_encoder_set_compression_level(encoder, 8);
    FLAC__stream_encoder_init_stream(encoder, keep, NULL, NULL, NULL, NULL);
    int is_done = FLAC__stream_encoder_process_interleaved(encoder, samples, 10000);
    FLAC__stream_encoder_finish(encoder);
    printf("%d %u %08x\n", is_done, size, sum);
    return 0;
}
