// libmbedtls-dev: mbedtls mbedx509 mbedcrypto
#include <mbedtls/aes.h>
#include <mbedtls/ecp.h>
#include <mbedtls/error.h>
#include <mbedtls/md.h>
#include <mbedtls/ssl.h>
#include <stdio.h>

int main(void) {
    unsigned char hash[64];
    char text[200];
    for (const int *type = mbedtls_md_list(); *type; type++) {
        const mbedtls_md_info_t *info = mbedtls_md_info_from_type(*type);
        mbedtls_md(info, (const unsigned char *)"text", 4, hash);
        printf("%s %02x%02x%02x\n", mbedtls_md_get_name(info), hash[0], hash[1], hash[2]);
    }
    for (const int *suite = mbedtls_ssl_list_ciphersuites(), *end = suite + 5; suite < end; suite++) puts(mbedtls_ssl_get_ciphersuite_name(*suite));
    mbedtls_strerror(MBEDTLS_ERR_ECP_INVALID_KEY, text, sizeof text);
    puts(text);
    return mbedtls_aes_self_test(0) + mbedtls_ecp_self_test(0);
}
