// libpugixml-dev: pugixml
#include <iostream>
#include <pugixml.hpp>

int main() {
    pugi::xml_document document;
    document.load_string("<a><b n='1'>x</b><b n='2'>y</b><c><b n='3'/></c></a>");
    for (auto &found : document.select_nodes("//b[@n > 1]")) std::cout << found.node().attribute("n").as_int() << found.node().child_value() << '\n';
    try {
        document.select_node("//[");
    } catch (const pugi::xpath_exception &error) {
        std::cout << error.what() << '\n';
    }
    document.save(std::cout);
}
