// Classes, RTTI, inline entities and static objects over three objects.
#include "objects.h"
#include <algorithm>
#include <numeric>
#include <typeinfo>

static Static in_main("main's");

int main(int argc, char **argv) {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (const char *kind : {"circle", "square", "none"})
        if (auto shape = make(kind, 2)) shapes.push_back(std::move(shape));
    for (const auto &shape : shapes) {
        std::cout << shape->name() << " " << shape->area() << " " << typeid(*shape).name();
        if (const auto *square = dynamic_cast<const Square *>(shape.get())) std::cout << " side " << square->side;
        if (const auto *named = dynamic_cast<const Named *>(shape.get())) std::cout << " " << named->label;
        std::cout << (dynamic_cast<const Circle *>(shape.get()) ? " round" : " cornered") << "\n";
    }
    try {
        (void)dynamic_cast<const Circle &>(*shapes.back());
    } catch (const std::bad_cast &) {
        std::cout << "bad cast\n";
    }

    std::map<std::string, std::vector<int>> groups;
    for (int i = 0; i < 20; i++) groups[i % 3 ? "other" : "third"].push_back(i * i);
    for (auto &[key, values] : groups) {
        std::sort(values.begin(), values.end(), [](int a, int b) { return a % 7 < b % 7 || (a % 7 == b % 7 && a < b); });
        std::cout << key << " " << std::accumulate(values.begin(), values.end(), 0) << " " << values.front() << "\n";
    }

    Counter<int>::only() += 5;
    Counter<std::string>::only() += "main";
    Counter<int>::made++;
    use_statics();
    shared++;
    std::cout << Counter<int>::only() << " " << Counter<std::string>::only() << " " << Counter<int>::made << "\n";
    std::cout << shared << " " << (address_of_shared() == &shared ? "one" : "two") << " " << next_serial() << "\n";
    std::cout << of_shapes() << std::endl;
    std::cerr << argc << " " << (argc > 1 ? argv[1] : "") << "\n";
    if (argc > 1) std::exit(argc);
    return 40;
}
