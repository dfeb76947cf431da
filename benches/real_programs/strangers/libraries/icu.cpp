// libicu-dev: icui18n icuuc icudata; pthread dl
#include <iostream>
#include <unicode/coll.h>
#include <unicode/msgfmt.h>
#include <unicode/translit.h>
#include <unicode/unistr.h>

int main() {
    UErrorCode status = U_ZERO_ERROR;
    std::string out;
    std::unique_ptr<icu::Transliterator> latin(icu::Transliterator::createInstance("Any-Latin; NFD; [:M:] Remove; NFC", UTRANS_FORWARD, status));
    auto text = icu::UnicodeString::fromUTF8("Ελληνικά русский 日本");
    latin->transliterate(text);
    std::cout << text.toUTF8String(out) << '\n';
    std::unique_ptr<icu::Collator> collator(icu::Collator::createInstance(icu::Locale("sv"), status));
    std::cout << collator->compare(icu::UnicodeString::fromUTF8("ä"), icu::UnicodeString("z")) << '\n';
    icu::Formattable arguments[] = {3.0};
    icu::UnicodeString result;
    icu::MessageFormat::format(icu::UnicodeString::fromUTF8("{0, plural, one {# file} other {# files}}"), arguments, 1, result, status);
    std::cout << result.toUTF8String(out = "") << ' ' << u_errorName(status) << '\n';
}
