// libntl-dev: ntl gmp; gf2x m pthread
#include <NTL/LLL.h>
#include <NTL/ZZXFactoring.h>
#include <iostream>

using namespace NTL;

int main() {
    ZZX f;
    SetCoeff(f, 12), SetCoeff(f, 0, -1);
    vec_pair_ZZX_long factors;
    ZZ content;
    factor(content, factors, f);
    std::cout << factors << '\n';
    mat_ZZ lattice;
    lattice.SetDims(4, 4);
    for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) lattice[i][j] = (i * 37 + j * j * 101) % 97;
    ZZ determinant;
    std::cout << LLL(determinant, lattice) << '\n' << lattice << '\n';
}
