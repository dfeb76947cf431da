#include <caml/callback.h>

int main(int argc, char **argv) {
    (void)argc;
    caml_main(argv);
    return 0;
}
