// libboost-context1.74-dev: boost_context; pthread
#include <boost/context/fiber.hpp>
#include <iostream>

int main() {
    int value = 0;
    boost::context::fiber other([&](boost::context::fiber &&back) {
        for (value = 1; value < 5; value++) {
            try {
                if (value == 3) throw value;
            } catch (int caught) {
                std::cout << "caught " << caught << '\n';
            }
            back = std::move(back).resume();
        }
        return std::move(back);
    });
    while (other) std::cout << value << '\n', other = std::move(other).resume();
}
