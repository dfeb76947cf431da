// libpcre2-dev: pcre2-8
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    const char *text = "one=1, two=22; Grüße=333 and (nested (parens)) end";
    const char *patterns[] = {"(\\w+)=(\\d+)", "(?i)GRÜSSE|grüße", "\\((?:[^()]++|(?R))*+\\)", "(?<=; ).*?(?= and)"};
    for (int i = 0; i < 4; i++) {
        int code, jit;
        size_t where, start = 0;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &where, NULL);
        pcre2_match_data *match = pcre2_match_data_create_from_pattern(re, NULL);
        jit = pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
        while (pcre2_match(re, (PCRE2_SPTR)text, strlen(text), start, 0, match, NULL) > 0) {
            size_t *ends = pcre2_get_ovector_pointer(match);
            printf("%d %d: %.*s\n", i, jit, (int)(ends[1] - ends[0]), text + ends[0]);
            start = ends[1];
        }
    }
    return 0;
}
