// librhash-dev: rhash; crypto dl
#include <rhash.h>
#include <stdio.h>

int main(void) {
    rhash_library_init();
    for (unsigned bit = 0; bit < RHASH_HASH_COUNT; bit++) {
        unsigned char digest[130];
        char text[260];
        rhash_msg(1u << bit, "text", 4, digest);
        rhash_print_bytes(text, digest, rhash_get_digest_size(1u << bit), RHPR_HEX);
        printf("%s %s\n", rhash_get_name(1u << bit), text);
    }
    return 0;
}
