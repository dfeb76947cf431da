// libunistring-dev: unistring
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <uninorm.h>
#include <uniwidth.h>

int main(void) {
    const uint8_t *text = (const uint8_t *)"Straße ΑΣ ﬁ e\u0301";
    size_t size;
    uint8_t *upper = u8_toupper(text, strlen((char *)text), NULL, UNINORM_NFC, NULL, &size);
    printf("%.*s\n", (int)size, upper);
    uint8_t *lower = u8_tolower(text, strlen((char *)text), "tr", UNINORM_NFKD, NULL, &size);
    printf("%.*s %d\n", (int)size, lower, u8_width(text, strlen((char *)text), "UTF-8"));
    free(upper), free(lower);
    return 0;
}
