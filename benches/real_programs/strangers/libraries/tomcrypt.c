// libtomcrypt-dev: tomcrypt tommath gmp
#include <stdio.h>
#include <tomcrypt.h>

int main(void) {
    unsigned char hash[64], key[32] = {9, 8, 7}, block[16] = "sixteen bytes...";
    hash_state state;
    symmetric_key schedule;
    unsigned long size = sizeof hash;
    sha512_init(&state), sha512_process(&state, (const unsigned char *)"text", 4), sha512_done(&state, hash);
    twofish_setup(key, 32, 0, &schedule);
    twofish_ecb_encrypt(block, block, &schedule);
    for (int i = 0; i < 16; i++) printf("%02x%02x", hash[i], block[i]);
    register_hash(&sha256_desc);
    hmac_memory(find_hash("sha256"), key, 32, block, 16, hash, &size);
    printf("\n%02x %lu %s\n", hash[0], size, error_to_string(CRYPT_INVALID_KEYSIZE));
    return 0;
}
