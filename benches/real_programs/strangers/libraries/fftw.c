// libfftw3-dev: fftw3; m
#include <fftw3.h>
#include <math.h>
#include <stdio.h>

int main(void) {
    enum { N = 360 };
    fftw_complex *in = fftw_malloc(sizeof *in * N), *out = fftw_malloc(sizeof *out * N);
    fftw_plan plan = fftw_plan_dft_1d(N, in, out, FFTW_FORWARD, FFTW_ESTIMATE);
    for (int i = 0; i < N; i++) in[i][0] = cos(i * 0.3), in[i][1] = sin(i * i * 0.01);
    fftw_execute(plan);
    for (int i = 0; i < N; i += 37) printf("%.9f %.9f\n", out[i][0], out[i][1]);
    fftw_destroy_plan(plan);
    fftw_cleanup();
    return 0;
}
