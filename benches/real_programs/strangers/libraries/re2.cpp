// libre2-dev: re2; pthread
#include <cstdio>
#include <re2/re2.h>
#include <re2/set.h>

int main() {
    std::string text = "a=1 bb=22 ccc=333", word;
    re2::StringPiece rest(text);
    int number;
    while (RE2::FindAndConsume(&rest, "(\\w+)=(\\d+)", &word, &number)) std::printf("%s %d\n", word.c_str(), number);
    RE2::GlobalReplace(&text, "\\d+", "<\\0>");
    RE2 broken("(", RE2::Quiet);
    std::printf("%s %s\n", text.c_str(), broken.error().c_str());
    RE2::Set set(RE2::DefaultOptions, RE2::UNANCHORED);
    set.Add("a+b", nullptr), set.Add("[0-9]{3}", nullptr), set.Compile();
    std::vector<int> hits;
    set.Match("xaab123", &hits);
    std::printf("%zu sets\n", hits.size());
}
