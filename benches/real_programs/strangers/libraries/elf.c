// libdw-dev: dw elf lzma bz2 z; dl
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc < 1) return 1;
    elf_version(EV_CURRENT);
    int file = open("main.o", O_RDONLY), count = 0;
    (void)argv;
    Elf *elf = elf_begin(file, ELF_C_READ, NULL);
    size_t names;
    elf_getshdrstrndx(elf, &names);
    for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
        GElf_Shdr header;
        gelf_getshdr(section, &header);
        printf("%s %lu\n", elf_strptr(elf, names, header.sh_name), header.sh_size);
        count++;
    }
    Dwarf *dwarf = dwarf_begin_elf(elf, DWARF_C_READ, NULL);
    printf("%d %s\n", count, dwarf ? "dwarf" : dwarf_errmsg(-1));
    elf_end(elf);
    return 0;
}
