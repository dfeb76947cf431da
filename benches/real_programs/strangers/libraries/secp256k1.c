// libsecp256k1-dev: secp256k1; gmp
#include <secp256k1.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    unsigned char key[32], text[32], packed[64], public_bytes[33];
    size_t size = 33;
    secp256k1_ecdsa_signature signature;
    secp256k1_pubkey public_key;
    memset(key, 7, 32), memset(text, 9, 32);
    secp256k1_context *context = secp256k1_context_create(SECP256K1_CONTEXT_SIGN | SECP256K1_CONTEXT_VERIFY);
    secp256k1_ec_pubkey_create(context, &public_key, key);
    secp256k1_ecdsa_sign(context, &signature, text, key, NULL, NULL);
    secp256k1_ecdsa_signature_serialize_compact(context, packed, &signature);
    secp256k1_ec_pubkey_serialize(context, public_bytes, &size, &public_key, SECP256K1_EC_COMPRESSED);
    for (int i = 0; i < 32; i++) printf("%02x%02x", packed[i], public_bytes[i]);
    printf(" %d\n", secp256k1_ecdsa_verify(context, &signature, text, &public_key));
    return 0;
}
