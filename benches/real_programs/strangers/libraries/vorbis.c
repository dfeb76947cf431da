// libvorbis-dev: vorbisenc vorbis ogg; m
#include <stdio.h>
#include <vorbis/vorbisenc.h>

int main(void) {
    vorbis_info info;
    vorbis_dsp_state state;
    vorbis_block block;
    ogg_packet packet;
    long bytes = 0, packets = 0;
    vorbis_info_init(&info);
    if (vorbis_encode_init_vbr(&info, 1, 44100, 0.4f)) return 1;
    vorbis_analysis_init(&state, &info);
    vorbis_block_init(&state, &block);
    float **buffer = vorbis_analysis_buffer(&state, 16384);
    for (int i = 0; i < 16384; i++) buffer[0][i] = (i * 31 % 400 - 200) / 300.0f;
    vorbis_analysis_wrote(&state, 16384);
    vorbis_analysis_wrote(&state, 0);
    while (vorbis_analysis_blockout(&state, &block) == 1) {
        vorbis_analysis(&block, NULL);
        vorbis_bitrate_addblock(&block);
        while (vorbis_bitrate_flushpacket(&state, &packet)) bytes += packet.bytes, packets++;
    }
    printf("%ld bytes in %ld packets, %s\n", bytes, packets, vorbis_version_string());
    return 0;
}
