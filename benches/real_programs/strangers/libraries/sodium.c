// libsodium-dev: sodium; pthread
#include <sodium.h>
#include <stdio.h>

static void show(const unsigned char *bytes, size_t size) {
    char text[2 * 64 + 1];
    puts(sodium_bin2hex(text, sizeof text, bytes, size));
}

int main(void) {
    unsigned char seed[32] = {1, 2, 3}, public[32], secret[64], signature[64], hash[32], sealed[48 + 16], nonce[24] = {0};
    if (sodium_init() < 0) return 1;
    crypto_sign_seed_keypair(public, secret, seed);
    crypto_sign_detached(signature, NULL, (const unsigned char *)"text", 4, secret);
    show(signature, 64);
    printf("%d\n", crypto_sign_verify_detached(signature, (const unsigned char *)"text", 4, public));
    crypto_generichash(hash, 32, public, 32, NULL, 0);
    show(hash, 32);
    crypto_secretbox_easy(sealed, secret, 48, nonce, seed);
    show(sealed, 64);
    crypto_pwhash(hash, 32, "password", 8, seed, 2, 8 << 20, crypto_pwhash_ALG_DEFAULT);
    show(hash, 32);
    return 0;
}
