// libgsl-dev: gsl gslcblas; m
#include <gsl/gsl_eigen.h>
#include <gsl/gsl_integration.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sf_bessel.h>
#include <math.h>
#include <stdio.h>

static double integrand(double x, void *scale) { return log(*(double *)scale * x) / sqrt(x); }

int main(void) {
    double scale = 1, result, error, values[9] = {4, 1, 2, 1, 3, 0, 2, 0, 5};
    gsl_integration_workspace *space = gsl_integration_workspace_alloc(1000);
    gsl_function function = {integrand, &scale};
    gsl_integration_qags(&function, 0, 1, 0, 1e-7, 1000, space, &result, &error);
    printf("integral %.12f, J0(5) %.12f\n", result, gsl_sf_bessel_J0(5));
    gsl_matrix_view matrix = gsl_matrix_view_array(values, 3, 3);
    gsl_vector *eigen = gsl_vector_alloc(3);
    gsl_eigen_symm(&matrix.matrix, eigen, gsl_eigen_symm_alloc(3));
    for (int i = 0; i < 3; i++) printf("eigenvalue %.10f\n", gsl_vector_get(eigen, i));
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    for (int i = 0; i < 4; i++) printf("%lu\n", gsl_rng_get(random));
    return 0;
}
