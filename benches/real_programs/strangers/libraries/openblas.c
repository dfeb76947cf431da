// libopenblas-pthread-dev: openblas; m gfortran pthread
#include <stdio.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
            const double *, const int *, const double *, double *, const int *);
void dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);

int main(void) {
    enum { N = 200 };
    static double a[N * N], b[N * N], c[N * N], x[N];
    int pivots[N], n = N, one = 1, info;
    double unit = 1, zero = 0, sum = 0;
    for (int i = 0; i < N * N; i++) a[i] = (i * 7919 % 101) - 50, b[i] = (i * 104729 % 97) - 48;
    dgemm_("N", "T", &n, &n, &n, &unit, a, &n, b, &n, &zero, c, &n);
    for (int i = 0; i < N * N; i += 991) sum += c[i];
    for (int i = 0; i < N; i++) a[i * N + i] += 10000, x[i] = i;
    dgesv_(&n, &one, a, &n, pivots, x, &n, &info);
    printf("%.1f %d %.9f %.9f\n", sum, info, x[1], x[N - 1]);
    return 0;
}
