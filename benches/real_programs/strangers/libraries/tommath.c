// libtommath-dev: tommath
#include <stdio.h>
#include <tommath.h>

int main(void) {
    mp_int a, b;
    char text[400];
    mp_init_multi(&a, &b, NULL);
    mp_2expt(&a, 521), mp_sub_d(&a, 1, &a);
    int is_prime;
    mp_prime_is_prime(&a, 8, &is_prime);
    mp_sqr(&a, &b);
    mp_toradix(&b, text, 10);
    printf("%d %s\n", is_prime, text);
    return 0;
}
