// Products of matrices of many sizes with OpenBLAS, whose threads share the large ones; the results are compared with plain loops.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
            const double *, const int *, const double *, double *, const int *);
void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *, const float *, const int *,
            const float *, const int *, const float *, float *, const int *);
void dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);
double ddot_(const int *, const double *, const int *, const double *, const int *);
double dnrm2_(const int *, const double *, const int *);
void daxpy_(const int *, const double *, const double *, const int *, double *, const int *);
char *openblas_get_corename(void);
int openblas_get_num_threads(void);
void openblas_set_num_threads(int);

enum { LARGEST = 320 };
static double a[LARGEST * LARGEST], b[LARGEST * LARGEST], c[LARGEST * LARGEST], expected[LARGEST * LARGEST];
static float fa[LARGEST * LARGEST], fb[LARGEST * LARGEST], fc[LARGEST * LARGEST];

static double at(const double *matrix, char transposed, int row, int column, int n) {
    return transposed == 'T' ? matrix[row * n + column] : matrix[column * n + row];
}

static void product(char ta, char tb, int n, double alpha, double beta) {
    double worst = 0, sum = 0;
    for (int i = 0; i < n * n; i++) a[i] = (i * 7919 % 101) - 50, b[i] = (i * 104729 % 97) - 48, c[i] = expected[i] = i % 13;
    for (int column = 0; column < n; column++)
        for (int row = 0; row < n; row++) {
            double dot = 0;
            for (int k = 0; k < n; k++) dot += at(a, ta, row, k, n) * at(b, tb, k, column, n);
            expected[column * n + row] = alpha * dot + beta * expected[column * n + row];
        }
    dgemm_(&ta, &tb, &n, &n, &n, &alpha, a, &n, b, &n, &beta, c, &n);
    for (int i = 0; i < n * n; i++) worst = fmax(worst, fabs(c[i] - expected[i])), sum += c[i] * (i % 7);
    printf("dgemm %c%c %d: sum %.6f, %s\n", ta, tb, n, sum, worst < 1e-6 ? "as computed by loops" : "wrong");
}

int main(void) {
    printf("%s, %d threads\n", openblas_get_corename(), openblas_get_num_threads());
    const int sizes[] = {1, 3, 8, 17, 64, 100, 256, LARGEST};
    for (int threads = 1; threads <= 4; threads *= 2) {
        openblas_set_num_threads(threads);
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
            product("NT"[i % 2], "NT"[i / 2 % 2], sizes[i], 1 + threads, i % 3);
    }
    int n = 150, one = 1, info, pivots[LARGEST];
    float funit = 1, fzero = 0;
    double fsum = 0, factor = 0.5;
    for (int i = 0; i < n * n; i++) fa[i] = (float)(i % 11), fb[i] = (float)(i % 7);
    sgemm_("N", "T", &n, &n, &n, &funit, fa, &n, fb, &n, &fzero, fc, &n);
    for (int i = 0; i < n * n; i++) fsum += fc[i];
    printf("sgemm %.1f\n", fsum);
    for (int i = 0; i < n * n; i++) a[i] = (i * 7919 % 101) - 50;
    for (int i = 0; i < n; i++) a[i * n + i] += 10000, c[i] = i;
    dgesv_(&n, &one, a, &n, pivots, c, &n, &info);
    printf("dgesv %d %.9f %.9f\n", info, c[1], c[n - 1]);
    daxpy_(&n, &factor, a, &one, b, &one);
    printf("ddot %.6f dnrm2 %.6f daxpy %.6f\n", ddot_(&n, a, &one, b, &one), dnrm2_(&n, a, &one), b[7]);
    return 5;
}
