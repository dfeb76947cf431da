// libboost-regex1.74-dev: boost_regex; pthread
#include <boost/regex.hpp>
#include <iostream>

int main() {
    std::string text = "one=1, two=22, three=333";
    for (boost::sregex_iterator at(text.begin(), text.end(), boost::regex("(?<name>\\w+)=(?<number>\\d+)")), end; at != end; ++at)
        std::cout << (*at)["name"] << ' ' << (*at)["number"] << '\n';
    std::cout << boost::regex_replace(text, boost::regex("(\\d)"), "<$1>") << '\n';
    try {
        boost::regex broken("(a");
    } catch (const boost::regex_error &error) {
        std::cout << error.what() << '\n';
    }
}
