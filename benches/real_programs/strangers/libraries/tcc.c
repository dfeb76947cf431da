// libtcc-dev: tcc; m dl pthread
#include <libtcc.h>
#include <stdio.h>

static int twice(int value) { return 2 * value; }

int main(void) {
    TCCState *tcc = tcc_new();
    tcc_set_options(tcc, "-nostdlib -nostdinc");
    tcc_set_output_type(tcc, TCC_OUTPUT_MEMORY);
    if (tcc_compile_string(tcc, "int twice(int); int run(int n) { int s = 0; for (int i = 0; i < n; i++) s += twice(i); return s; }")) return 1;
    tcc_add_symbol(tcc, "twice", (void *)twice);
    if (tcc_relocate(tcc, TCC_RELOCATE_AUTO) < 0) return 2;
    int (*run)(int) = (int (*)(int))tcc_get_symbol(tcc, "run");
    printf("%d\n", run(100));
    tcc_delete(tcc);
    return 0;
}
