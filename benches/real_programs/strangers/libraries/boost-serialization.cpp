// libboost-serialization1.74-dev: boost_serialization
#include <boost/archive/text_iarchive.hpp>
#include <boost/archive/text_oarchive.hpp>
#include <boost/serialization/export.hpp>
#include <boost/serialization/unique_ptr.hpp>
#include <boost/serialization/vector.hpp>
#include <iostream>
#include <sstream>

struct Shape {
    virtual ~Shape() = default;
    virtual int area() const { return 0; }
    template <class Archive> void serialize(Archive &, unsigned) {}
};
struct Square : Shape {
    int side = 1;
    int area() const override { return side * side; }
    template <class Archive> void serialize(Archive &archive, unsigned) { archive &boost::serialization::base_object<Shape>(*this) & side; }
};
BOOST_CLASS_EXPORT(Square)

int main() {
    std::stringstream stream;
    {
        auto square = std::make_unique<Square>();
        square->side = 7;
        std::unique_ptr<Shape> shape = std::move(square);
        boost::archive::text_oarchive(stream) << shape << std::vector<double>{1.5, 2.5};
    }
    std::cout << stream.str() << '\n';
    std::unique_ptr<Shape> shape;
    std::vector<double> list;
    boost::archive::text_iarchive(stream) >> shape >> list;
    std::cout << shape->area() << ' ' << list.size() << '\n';
}
