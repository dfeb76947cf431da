// libargon2-dev: argon2; pthread
#include <argon2.h>
#include <stdio.h>

int main(void) {
    char text[200];
    printf("%d\n", argon2id_hash_encoded(2, 1 << 12, 3, "password", 8, "saltsalt", 8, 32, text, sizeof text));
    puts(text);
    printf("%d %s\n", argon2id_verify(text, "password", 8), argon2_error_message(argon2id_verify(text, "wrong", 5)));
    return 0;
}
