// Functions of libgcc that no shared library has.
#include <complex.h>
#include <stdio.h>

int main(int argc, char **argv) {
    (void)argv;
    unsigned __int128 big = (unsigned __int128)argc << 100;
    _Float128 wide = (_Float128)argc / 3;
    double complex z = (argc + 2.0 * I) / (3.0 - I * argc);
    printf("%llu %llu %.6f %.6f %.6f %d\n", (unsigned long long)(big / 12345678901234567ull), (unsigned long long)(big % 1000000007), (double)wide,
           creal(z), cimag(z), __builtin_popcountll(argc * 0x123456789ull));
    return 0;
}
