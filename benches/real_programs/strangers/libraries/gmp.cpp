// libgmp-dev: gmpxx gmp
#include <gmpxx.h>
#include <iostream>

int main() {
    mpz_class product = 1, power, prime;
    for (int i = 1; i <= 200; i++) product *= i;
    mpz_ui_pow_ui(power.get_mpz_t(), 3, 1000);
    mpz_nextprime(prime.get_mpz_t(), power.get_mpz_t());
    std::cout << product << '\n' << prime - power << '\n' << gcd(product, power) << '\n' << mpq_class(power, product) << '\n';
}
