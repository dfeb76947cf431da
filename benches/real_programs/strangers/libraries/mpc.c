// libmpc-dev: mpc mpfr gmp
#include <mpc.h>
#include <stdio.h>

int main(void) {
    mpc_t z, w;
    mpc_init2(z, 300), mpc_init2(w, 300);
    mpc_set_d_d(z, 1.25, -2.5, MPC_RNDNN);
    mpc_pow(w, z, z, MPC_RNDNN);
    mpc_atanh(z, w, MPC_RNDNN);
    puts(mpc_get_str(10, 50, w, MPC_RNDNN)), puts(mpc_get_str(16, 40, z, MPC_RNDNN));
    return 0;
}
