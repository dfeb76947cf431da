// libsnappy-dev: snappy
#include <cstdio>
#include <snappy.h>
#include <string>

int main() {
    std::string text, packed, back;
    for (int i = 0; i < 9000; i++) text += std::to_string(i * i % 977);
    snappy::Compress(text.data(), text.size(), &packed);
    bool is_valid = snappy::Uncompress(packed.data(), packed.size(), &back);
    std::printf("%zu %zu %d %d\n", text.size(), packed.size(), is_valid, back == text);
}
