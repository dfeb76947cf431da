/* A JIT provider of PostgreSQL that is PostgreSQL's own `llvmjit` with jittison's ORC C API under it.
 *
 * This library is linked against `libjittison_orc.so`. PostgreSQL opens it for all libraries that are opened later
 * (RTLD_GLOBAL), and then this file opens `llvmjit`, whose `LLVMOrc...` names bind to the first definition: jittison's.
 * Everything else of LLVM stays LLVM's. The two functions that PostgreSQL calls are passed on to `llvmjit`, so this file needs
 * no header of PostgreSQL and fits each of its versions.
 *
 * Build: cc -shared -fPIC -o jittison.so provider.c -Wl,--no-as-needed -L DIRECTORY -ljittison_orc -Wl,-rpath,DIRECTORY
 * Use: copy it to the directory that `pg_config --pkglibdir` prints, and set `jit_provider = 'jittison'`.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* The directory of PostgreSQL's loadable libraries, a variable of the server. */
extern char pkglib_path[];

static void *find(const char *name) {
  static void *llvmjit;
  if (!llvmjit) {
    char path[4096];
    snprintf(path, sizeof path, "%s/llvmjit.so", pkglib_path);
    llvmjit = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  }
  void *found = llvmjit ? dlsym(llvmjit, name) : NULL;
  if (!found) {
    /* PostgreSQL checks that the file of a provider exists, and ends the backend if it cannot be loaded. */
    fprintf(stderr, "jittison: cannot load PostgreSQL's own llvmjit: %s\n", dlerror());
    exit(1);
  }
  return found;
}

/* Says for which version of PostgreSQL the library is: the one for which `llvmjit` is. */
const void *Pg_magic_func(void) {
  const void *(*magic)(void) = (const void *(*)(void))find("Pg_magic_func");
  return magic();
}

/* Fills a struct of PostgreSQL with the functions of the provider. */
void _PG_jit_provider_init(void *callbacks) {
  void (*init)(void *) = (void (*)(void *))find("_PG_jit_provider_init");
  init(callbacks);
}
