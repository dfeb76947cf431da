// libb2-dev: b2; gomp
#include <blake2.h>
#include <stdio.h>

int main(void) {
    uint8_t hash[64];
    blake2b(hash, "text", NULL, 64, 4, 0);
    for (int i = 0; i < 64; i++) printf("%02x", hash[i]);
    blake2bp(hash, "text", NULL, 64, 4, 0);
    printf("\n%02x%02x\n", hash[0], hash[63]);
    return 0;
}
