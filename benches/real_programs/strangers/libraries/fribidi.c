// libfribidi-dev: fribidi
#include <fribidi/fribidi.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    const char *text = "abc (אבג) 123 دهو";
    FriBidiChar wide[100], visual[100];
    FriBidiLevel levels[100];
    FriBidiParType direction = FRIBIDI_PAR_ON;
    char back[300];
    int size = fribidi_charset_to_unicode(FRIBIDI_CHAR_SET_UTF8, text, strlen(text), wide);
    int top = fribidi_log2vis(wide, size, &direction, visual, NULL, NULL, levels);
    fribidi_unicode_to_charset(FRIBIDI_CHAR_SET_UTF8, visual, size, back);
    printf("%d %s\n", top, back);
    return 0;
}
