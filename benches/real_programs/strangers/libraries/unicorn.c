// libunicorn-dev: unicorn; m pthread
#include <stdio.h>
#include <unicorn/unicorn.h>

static int steps;
static void step(uc_engine *engine, uint64_t at, uint32_t size, void *data) { (void)engine, (void)at, (void)size, (void)data, steps++; }

int main(void) {
    // mov ecx, 10; xor eax, eax; l: add eax, ecx; dec ecx; jnz l
    const unsigned char code[] = {0xb9, 10, 0, 0, 0, 0x31, 0xc0, 0x01, 0xc8, 0xff, 0xc9, 0x75, 0xfa};
    uc_engine *engine;
    uc_hook hook;
    unsigned long sum;
    uc_open(UC_ARCH_X86, UC_MODE_64, &engine);
    uc_mem_map(engine, 0x10000, 0x1000, UC_PROT_ALL);
    uc_mem_write(engine, 0x10000, code, sizeof code);
    uc_hook_add(engine, &hook, UC_HOOK_CODE, step, NULL, 1, 0);
    uc_err error = uc_emu_start(engine, 0x10000, 0x10000 + sizeof code, 0, 0);
    uc_reg_read(engine, UC_X86_REG_RAX, &sum);
    printf("%s %lu in %d\n", uc_strerror(error), sum, steps);
    uc_close(engine);
    return 0;
}
