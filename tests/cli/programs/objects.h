#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Shape {
    virtual ~Shape();
    virtual double area() const = 0;
    virtual std::string name() const { return "shape"; }
};
struct Named {
    virtual ~Named() = default;
    std::string label = "label";
};
struct Circle : Shape {
    double radius;
    explicit Circle(double radius) : radius(radius) {}
    double area() const override { return 3 * radius * radius; }
    std::string name() const override { return "circle"; }
};
struct Square final : virtual Named, Shape {
    double side;
    explicit Square(double side);
    double area() const override;
    std::string name() const override;
};
std::unique_ptr<Shape> make(const std::string &kind, double size);

// All objects define these. One definition must win.
template <typename T> struct Counter {
    static inline int made = 0;
    static T &only() {
        static T value = (std::cout << "first use of " << typeid(T).name() << "\n", T());
        return value;
    }
};
inline int shared = 100;
inline int next_serial() {
    static int serial = 0;
    return ++serial;
}
// Not with `std::cout`: an inline variable may be constructed before it.
struct Static {
    std::string name;
    int serial;
    explicit Static(const char *name) : name(name), serial(next_serial()) {
        std::printf("construct %s %d\n", name, serial);
    }
    ~Static() { std::printf("destroy %s %d\n", name.c_str(), serial); }
};
inline Static inline_static("inline static");
void *address_of_shared();
std::string of_shapes();
void use_statics();
