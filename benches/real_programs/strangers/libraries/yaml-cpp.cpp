// libyaml-cpp-dev: yaml-cpp
#include <iostream>
#include <yaml-cpp/yaml.h>

int main() {
    YAML::Node node = YAML::Load("a: [1, 2, {b: c}]\nd: &x {e: 1.5}\nf: *x\n");
    node["g"] = std::vector<int>{3, 1, 2};
    std::cout << node << '\n' << node["f"]["e"].as<double>() << '\n';
    try {
        node["a"].as<int>();
    } catch (const YAML::Exception &error) {
        std::cout << error.what() << '\n';
    }
    try {
        YAML::Load("a: [1, 2");
    } catch (const YAML::ParserException &error) {
        std::cout << error.what() << '\n';
    }
}
