// libmpfr-dev: mpfr gmp
#include <mpfr.h>
#include <stdio.h>

int main(void) {
    mpfr_t x, y;
    mpfr_inits2(400, x, y, (mpfr_ptr)0);
    mpfr_const_pi(x, MPFR_RNDN);
    mpfr_zeta_ui(y, 3, MPFR_RNDN);
    mpfr_printf("%.100Rf\n%.100Rf\n", x, y);
    mpfr_gamma(x, y, MPFR_RNDD);
    mpfr_printf("%.60Re\n", x);
    mpfr_free_cache();
    return 0;
}
