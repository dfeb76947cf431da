// libboost-program-options1.74-dev: boost_program_options
#include <boost/program_options.hpp>
#include <iostream>

namespace options = boost::program_options;

int main() {
    options::options_description known("options");
    known.add_options()("number,n", options::value<int>()->default_value(3), "a number")("list", options::value<std::vector<std::string>>()->multitoken(), "words");
    std::cout << known;
    options::variables_map values;
    options::store(options::command_line_parser({"-n", "42", "--list", "a", "b"}).options(known).run(), values);
    std::cout << values["number"].as<int>() << ' ' << values["list"].as<std::vector<std::string>>().size() << '\n';
    try {
        options::store(options::command_line_parser({"--number=x"}).options(known).run(), values), options::store(options::command_line_parser({"--none"}).options(known).run(), values);
    } catch (const options::error &error) {
        std::cout << error.what() << '\n';
    }
}
