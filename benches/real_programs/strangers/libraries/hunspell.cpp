// libhunspell-dev: hunspell-1.7
#include <cstdio>
#include <fstream>
#include <hunspell/hunspell.hxx>

int main() {
    std::ofstream("strangers.aff") << "SET UTF-8\nTRY esianrtolcdugmphbyfvkwz\nSFX S Y 1\nSFX S 0 s [^s]\n";
    std::ofstream("strangers.dic") << "3\nword/S\nlinker/S\nobject/S\n";
    Hunspell speller("strangers.aff", "strangers.dic");
    std::printf("%d %d %d\n", speller.spell("words"), speller.spell("wrods"), speller.spell("linker"));
    for (auto &word : speller.suggest("linkrs")) std::printf("%s\n", word.c_str());
    std::remove("strangers.aff"), std::remove("strangers.dic");
}
