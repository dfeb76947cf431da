// libsuitesparse-dev: umfpack cholmod camd ccolamd colamd amd metis GKlib suitesparseconfig openblas; m gfortran pthread gomp
#include <suitesparse/umfpack.h>
#include <stdio.h>

int main(void) {
    int starts[] = {0, 2, 5, 9, 10, 12}, rows[] = {0, 1, 0, 2, 4, 1, 2, 3, 4, 2, 1, 4};
    double values[] = {2, 3, 3, -1, 4, 4, -3, 1, 2, 2, 6, 1}, b[] = {8, 45, -3, 3, 19}, x[5];
    void *symbolic, *numeric;
    umfpack_di_symbolic(5, 5, starts, rows, values, &symbolic, NULL, NULL);
    umfpack_di_numeric(starts, rows, values, symbolic, &numeric, NULL, NULL);
    int status = umfpack_di_solve(UMFPACK_A, starts, rows, values, x, b, numeric, NULL, NULL);
    printf("%d", status);
    for (int i = 0; i < 5; i++) printf(" %.9f", x[i]);
    puts("");
    return 0;
}
