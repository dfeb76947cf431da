// libtiff-dev: tiff webp zstd lzma jbig jpeg deflate Lerc z; m
#include <stdio.h>
#include <tiffio.h>
#include <unistd.h>

int main(void) {
    const int codecs[] = {COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS, COMPRESSION_ZSTD};
    for (int c = 0; c < 4; c++) {
        unsigned char row[256], back[256];
        unsigned sum = 0, width = 0;
        TIFF *tiff = TIFFOpen("strangers.tiff", "w");
        TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 256), TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 16);
        TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8), TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
        TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK), TIFFSetField(tiff, TIFFTAG_COMPRESSION, codecs[c]);
        for (int y = 0; y < 16; y++) {
            for (int x = 0; x < 256; x++) row[x] = x * y >> 4;
            TIFFWriteScanline(tiff, row, y, 0);
        }
        TIFFClose(tiff);
        tiff = TIFFOpen("strangers.tiff", "r");
        TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
        for (int y = 0; y < 16; y++) {
            TIFFReadScanline(tiff, back, y, 0);
            for (int x = 0; x < 256; x++) sum = sum * 31 + back[x];
        }
        TIFFClose(tiff);
        printf("%d %u %08x\n", codecs[c], width, sum);
    }
    unlink("strangers.tiff");
    return 0;
}
