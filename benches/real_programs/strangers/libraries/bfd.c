// binutils-dev libiberty-dev: bfd iberty sframe z zstd; dl
#define PACKAGE "strangers"
#include <bfd.h>
#include <stdio.h>

int main(void) {
    bfd_init();
    bfd *file = bfd_openr("main.o", NULL);
    if (!file || !bfd_check_format(file, bfd_object)) return puts(bfd_errmsg(bfd_get_error())), 1;
    printf("%s\n", bfd_get_target(file));
    for (asection *section = file->sections; section; section = section->next) printf("%s %lu\n", section->name, (long)bfd_section_size(section));
    long room = bfd_get_symtab_upper_bound(file);
    asymbol **symbols = bfd_alloc(file, room);
    printf("%d\n", bfd_canonicalize_symtab(file, symbols) > 5);
    bfd_close(file);
    return 0;
}
