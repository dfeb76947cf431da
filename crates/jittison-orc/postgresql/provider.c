/* A JIT provider of PostgreSQL that is PostgreSQL's own `llvmjit` with jittison's ORC C API under it.
 *
 * This library is linked against `libjittison_orc.so`. PostgreSQL opens it for all libraries that are opened later
 * (RTLD_GLOBAL), and then this file opens `llvmjit`, whose `LLVMOrc...` names bind to the first definition: jittison's.
 * Everything else of LLVM stays LLVM's. The two functions that PostgreSQL calls are passed on to `llvmjit`, so this file needs
 * no header of PostgreSQL and fits each of its versions.
 *
 * The SQL function `jittison_modules_json` (`modules.sql`) is here too: it says which compiled code this backend has in memory.
 *
 * Build: cc -shared -fPIC -o jittison.so provider.c -Wl,--no-as-needed -L DIRECTORY -ljittison_orc -Wl,-rpath,DIRECTORY
 * Use: copy it to the directory that `pg_config --pkglibdir` prints, and set `jit_provider = 'jittison'`.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- the modules of this backend ---- */

/* Of libjittison_orc: an array in JSON, which the caller frees. */
extern char *jittison_orc_modules(void);
/* Of the server: memory that it frees after the query. */
extern void *palloc(size_t size);

/* What the macro PG_FUNCTION_INFO_V1 defines: the function takes its arguments by version 1 of the convention. */
struct finfo {
  int api_version;
};

const struct finfo *pg_finfo_jittison_modules_json(void) {
  static const struct finfo version_1 = {1};
  return &version_1;
}

/* jittison_modules_json() RETURNS cstring. A Datum is a word, here the address of the string. */
size_t jittison_modules_json(void *call) {
  (void)call;
  char *modules = jittison_orc_modules();
  const char *text = modules ? modules : "[]";
  size_t size = strlen(text) + 1;
  char *result = memcpy(palloc(size), text, size);
  free(modules);
  return (size_t)result;
}
