// libxxhash-dev: xxhash
#include <stdio.h>
#include <xxhash.h>

int main(void) {
    static unsigned char data[100000];
    for (int i = 0; i < 100000; i++) data[i] = i * i >> 3;
    XXH128_hash_t wide = XXH3_128bits(data, sizeof data);
    printf("%08x %016lx %016lx %016lx%016lx\n", XXH32(data, sizeof data, 1), XXH64(data, 999, 2), XXH3_64bits(data, 77777), wide.high64, wide.low64);
    return 0;
}
