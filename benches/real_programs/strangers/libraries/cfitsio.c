// libcfitsio-dev libcurl4-openssl-dev: cfitsio z bz2; m curl
#include <fitsio.h>
#include <stdio.h>

int main(void) {
    fitsfile *file;
    int status = 0, any;
    long axes[2] = {20, 30};
    static float image[600], back[600], nothing;
    double sum = 0;
    for (int i = 0; i < 600; i++) image[i] = i * 0.5f;
    fits_create_file(&file, "mem://", &status);
    fits_create_img(file, FLOAT_IMG, 2, axes, &status);
    fits_write_img(file, TFLOAT, 1, 600, image, &status);
    fits_update_key(file, TSTRING, "OBJECT", "stranger", "a comment", &status);
    fits_read_img(file, TFLOAT, 1, 600, &nothing, back, &any, &status);
    for (int i = 0; i < 600; i++) sum += back[i];
    char text[80];
    fits_read_key(file, TSTRING, "OBJECT", text, NULL, &status);
    printf("%d %.2f %s ", status, sum, text);
    fits_get_errstatus(KEY_NO_EXIST, text);
    puts(text);
    fits_close_file(file, &status);
    return 0;
}
