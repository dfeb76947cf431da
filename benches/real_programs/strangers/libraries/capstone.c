// libcapstone-dev: capstone
#include <capstone/capstone.h>
#include <stdio.h>

int main(void) {
    const unsigned char code[] = {0x48, 0x8b, 0x05, 0xb8, 0x13, 0, 0, 0xe9, 0xea, 0xbe, 0xad, 0xde, 0xc4, 0xe2, 0x7d, 0x18, 0x07, 0xc3};
    const unsigned char arm[] = {0xfd, 0x7b, 0xbf, 0xa9, 0x00, 0x00, 0x80, 0xd2, 0xc0, 0x03, 0x5f, 0xd6};
    csh handle;
    cs_insn *all;
    cs_open(CS_ARCH_X86, CS_MODE_64, &handle);
    size_t count = cs_disasm(handle, code, sizeof code, 0x1000, 0, &all);
    for (size_t i = 0; i < count; i++) printf("%lx %s %s\n", all[i].address, all[i].mnemonic, all[i].op_str);
    cs_open(CS_ARCH_ARM64, CS_MODE_ARM, &handle);
    count = cs_disasm(handle, arm, sizeof arm, 0x1000, 0, &all);
    for (size_t i = 0; i < count; i++) printf("%lx %s %s\n", all[i].address, all[i].mnemonic, all[i].op_str);
    return 0;
}
