// libssl-dev: ssl crypto; dl pthread
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <stdio.h>

int main(void) {
    unsigned char digest[64];
    unsigned size;
    const char *names[] = {"SHA256", "SHA3-512", "BLAKE2b512", "SM3"};
    for (int i = 0; i < 4; i++) {
        EVP_Digest("text", 4, digest, &size, EVP_get_digestbyname(names[i]), NULL);
        printf("%s %u %02x%02x\n", names[i], size, digest[0], digest[1]);
    }
    BIGNUM *a = BN_new(), *b = BN_new();
    BN_dec2bn(&a, "123456789012345678901234567890"), BN_set_word(b, 77);
    BN_exp(a, a, b, BN_CTX_new());
    printf("%d\n", BN_num_bits(a));
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    printf("%d\n", EVP_PKEY_get_bits(key));
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    SSL *client = SSL_new(context), *server = SSL_new(context);
    BIO *left, *right;
    BIO_new_bio_pair(&left, 0, &right, 0);
    SSL_set_bio(client, left, left), SSL_set_bio(server, right, right);
    SSL_set_connect_state(client), SSL_set_accept_state(server);
    SSL_do_handshake(client);
    printf("%d %s\n", SSL_do_handshake(server), ERR_reason_error_string(ERR_get_error()));
    return 0;
}
