// libgflags-dev: gflags; pthread
#include <cstdio>
#include <gflags/gflags.h>

DEFINE_int32(number, 5, "a number");
DEFINE_string(text, "none", "a text");

int main() {
    int count = 4;
    const char *words[] = {"program", "--number=7", "rest", "--text=word", nullptr};
    char **arguments = const_cast<char **>(words);
    gflags::ParseCommandLineFlags(&count, &arguments, true);
    std::printf("%d %s %d %s\n", FLAGS_number, FLAGS_text.c_str(), count, arguments[1]);
    std::string value;
    std::printf("%d %s\n", gflags::GetCommandLineOption("number", &value), value.c_str());
    std::printf("%s\n", gflags::SetCommandLineOption("number", "x").c_str());
}
