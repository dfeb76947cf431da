// libgif-dev: gif
#include <gif_lib.h>
#include <stdio.h>

static int keep(GifFileType *gif, const GifByteType *bytes, int count) {
    unsigned *sum = gif->UserData;
    for (int i = 0; i < count; i++) *sum = *sum * 31 + bytes[i];
    return count;
}

int main(void) {
    unsigned sum = 0;
    int error;
    GifColorType colors[4] = {{0, 0, 0}, {255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
    GifFileType *gif = EGifOpen(&sum, keep, &error);
    EGifPutScreenDesc(gif, 32, 32, 2, 0, GifMakeMapObject(4, colors));
    EGifPutImageDesc(gif, 0, 0, 32, 32, 0, NULL);
    for (int y = 0; y < 32; y++) {
        GifByteType row[32];
        for (int x = 0; x < 32; x++) row[x] = (x * y / 5) & 3;
        EGifPutLine(gif, row, 32);
    }
    EGifCloseFile(gif, &error);
    printf("%08x %s\n", sum, GifErrorString(D_GIF_ERR_NOT_GIF_FILE));
    return 0;
}
