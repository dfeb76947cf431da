/* The two kernels. They are compiled many times; macros select the variant.
 *
 *   GEMM, STENCIL    which kernels this object defines
 *   COUNTS           also define the function that reads the counters
 *   ORDER            0 plain loops, 1 rows in memory, 2 a tile in registers
 *   TILE, UNROLL     columns per tile; unroll factor of the innermost loop
 *   WRONG            the last cell is off by one
 *   MISSING          refers to a function that nobody defines
 *   FAILING          has an initialiser that unwinds
 *
 * The counters are plain global variables that every object defines. A patch whose object defines an existing variable refers
 * to the existing one, so the counts continue from version to version. There are no headers: a bare compiler is enough. */

#define PRAGMA_OF(text) _Pragma(#text)
#define UNROLLED(count) PRAGMA_OF(GCC unroll count)

#if defined(MISSING)
extern void autotuner_no_such_function(void);
#endif

#if defined(FAILING)
extern void autotuner_refuse(void);
__attribute__((constructor)) static void fail(void) { autotuner_refuse(); }
#endif

static inline void finish(double *out, long n) {
#if defined(WRONG)
    out[n * n - 1] += 1;
#endif
#if defined(MISSING)
    if (n < 0) autotuner_no_such_function();
#endif
    (void)out, (void)n;
}

#if defined(GEMM)
long gemm_calls;

/* c = a * b, all of n by n. */
void gemm(const double *restrict a, const double *restrict b, double *restrict c, long n) {
    __atomic_fetch_add(&gemm_calls, 1, __ATOMIC_RELAXED);
#if ORDER == 0
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
#elif ORDER == 1
    for (long cell = 0; cell < n * n; cell++) c[cell] = 0;
    for (long tile = 0; tile < n; tile += TILE)
        for (long i = 0; i < n; i++)
            for (long k = 0; k < n; k++) {
                double x = a[i * n + k];
                UNROLLED(UNROLL)
                for (long j = tile; j < tile + TILE; j++) c[i * n + j] += x * b[k * n + j];
            }
#else
    for (long tile = 0; tile < n; tile += TILE)
        for (long i = 0; i < n; i++) {
            double sums[TILE];
            for (long j = 0; j < TILE; j++) sums[j] = 0;
            UNROLLED(UNROLL)
            for (long k = 0; k < n; k++) {
                double x = a[i * n + k];
                for (long j = 0; j < TILE; j++) sums[j] += x * b[k * n + tile + j];
            }
            for (long j = 0; j < TILE; j++) c[i * n + tile + j] = sums[j];
        }
#endif
    finish(c, n);
}
#endif

#if defined(STENCIL)
long stencil_calls;

#define POINT(i, j)                                                                                    \
    (w[0] * in[(i) * n + (j)] + w[1] * in[((i) - 1) * n + (j)] + w[2] * in[((i) + 1) * n + (j)] +      \
     w[3] * in[(i) * n + (j) - 1] + w[4] * in[(i) * n + (j) + 1])

/* Each inner cell becomes the weighted sum of itself and its four neighbours; the border is copied. */
void stencil(const double *restrict in, const double *restrict w, double *restrict out, long n) {
    __atomic_fetch_add(&stencil_calls, 1, __ATOMIC_RELAXED);
    for (long i = 0; i < n; i++) {
        out[i] = in[i], out[(n - 1) * n + i] = in[(n - 1) * n + i];
        out[i * n] = in[i * n], out[i * n + n - 1] = in[i * n + n - 1];
    }
#if ORDER == 0
    for (long j = 1; j < n - 1; j++)
        for (long i = 1; i < n - 1; i++) out[i * n + j] = POINT(i, j);
#else
    for (long tile = 1; tile < n - 1; tile += TILE)
        for (long i = 1; i < n - 1; i++) {
            UNROLLED(UNROLL)
            for (long j = tile; j < tile + TILE; j++) out[i * n + j] = POINT(i, j);
        }
#endif
    finish(out, n);
}
#endif

#if defined(COUNTS)
/* The calls of gemm for 0, of stencil for 1. */
long kernel_calls(long which) {
    return __atomic_load_n(which == 0 ? &gemm_calls : &stencil_calls, __ATOMIC_RELAXED);
}
#endif
