// libcln-dev: cln gmp
#include <cln/cln.h>
#include <iostream>

int main() {
    std::cout << cln::pi(cln::float_format(80)) << '\n' << cln::zeta(3, cln::float_format(60)) << '\n';
    cln::cl_I root;
    cln::isqrt(cln::factorial(50), &root);
    std::cout << root << ' ' << cln::isprobprime(cln::expt_pos(cln::cl_I(2), 89) - 1) << '\n';
}
