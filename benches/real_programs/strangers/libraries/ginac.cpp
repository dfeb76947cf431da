// libginac-dev: ginac cln gmp; dl
#include <ginac/ginac.h>
#include <iostream>

int main() {
    GiNaC::symbol x("x"), y("y");
    GiNaC::ex f = GiNaC::pow(GiNaC::sin(x) + y, 3);
    // The order of terms depends on addresses, so values are printed.
    std::cout << f.diff(x, 2).subs(GiNaC::lst{x == 0, y == 2}) << '\n' << GiNaC::series(GiNaC::tan(x), x == 0, 8) << '\n';
    std::cout << GiNaC::factor(GiNaC::pow(x, 6) - 1).subs(x == 3) << '\n' << GiNaC::evalf(GiNaC::zeta(3)) << '\n';
    GiNaC::lst equations = {x + y == 3, x - 2 * y == 1};
    std::cout << GiNaC::lsolve(equations, GiNaC::lst{x, y}) << '\n';
    try {
        GiNaC::ex broken = 1 / GiNaC::ex(0);
    } catch (const std::exception &error) {
        std::cout << error.what() << '\n';
    }
}
