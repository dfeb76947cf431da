// The key functions, and with them the vtables.
#include "objects.h"

static Static in_shapes("shapes'");
static Static *leaked = new Static("leaked");

Shape::~Shape() { Counter<int>::made += 10; }
Square::Square(double side) : side(side) { label = "corner"; }
double Square::area() const { return side * side; }
std::string Square::name() const { return "square"; }

std::unique_ptr<Shape> make(const std::string &kind, double size) {
    if (kind == "circle") return std::make_unique<Circle>(size);
    if (kind == "square") return std::make_unique<Square>(size);
    return nullptr;
}

std::string of_shapes() { return "shapes " + leaked->name + " " + std::to_string(shared); }
