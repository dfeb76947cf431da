// libutf8proc-dev: utf8proc
#include <stdio.h>
#include <utf8proc.h>

int main(void) {
    const utf8proc_uint8_t *text = (const utf8proc_uint8_t *)"Straße ΑΣ ﬁ e\u0301";
    puts((char *)utf8proc_NFKC_Casefold(text)), puts((char *)utf8proc_NFD(text)), puts((char *)utf8proc_NFC(text));
    puts(utf8proc_category_string(0x661)), puts(utf8proc_errmsg(UTF8PROC_ERROR_INVALIDUTF8));
    return 0;
}
