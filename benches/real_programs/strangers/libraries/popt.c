// libpopt-dev: popt
#include <popt.h>
#include <stdio.h>

int main(void) {
    int number = 0, code;
    char *text = NULL;
    struct poptOption options[] = {{"number", 'n', POPT_ARG_INT, &number, 0, "a number", "N"}, {"text", 't', POPT_ARG_STRING, &text, 'x', "a text", NULL}, POPT_AUTOHELP POPT_TABLEEND};
    const char *words[] = {"program", "-n", "42", "--text=word", "rest", "--none", NULL};
    poptContext context = poptGetContext("program", 6, words, options, 0);
    while ((code = poptGetNextOpt(context)) > 0) printf("%c\n", code);
    printf("%d %s %s: %s\n", number, text, poptBadOption(context, 0), poptStrerror(code));
    poptPrintHelp(context, stdout, 0);
    poptFreeContext(context);
    return 0;
}
