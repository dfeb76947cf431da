// libgoogle-perftools-dev: tcmalloc_minimal; pthread
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gperftools/malloc_extension.h>
#include <string>
#include <thread>

int main() {
    void *block = std::malloc(100000);
    std::printf("%d\n", MallocExtension::instance()->GetOwnership(block) == MallocExtension::kOwned);
    char *copy = strdup("allocated by the C library");
    std::printf("%d %s\n", MallocExtension::instance()->GetOwnership(copy) == MallocExtension::kOwned, copy);
    std::free(copy), std::free(block);
    std::thread([] { std::string(10000, 'x').c_str(); }).join();
}
