// libpari-dev: pari gmp; m dl
#include <pari/pari.h>

int main(void) {
    pari_init(8000000, 500000);
    pari_printf("%Ps\n", factor(subiu(powuu(2, 128), 1)));
    pari_printf("%Ps\n", gp_read_str("polroots(x^5 - x - 1)"));
    pari_printf("%Ps\n", gp_read_str("ellap(ellinit([0,0,1,-1,0]), 10007)"));
    pari_close();
    return 0;
}
