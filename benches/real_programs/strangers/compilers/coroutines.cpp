#include <coroutine>
#include <exception>
#include <iostream>
#include <ranges>

struct Numbers {
    struct promise_type {
        int value;
        Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(int next) { return value = next, std::suspend_always{}; }
        void unhandled_exception() { throw; }
        void return_void() {}
    };
    std::coroutine_handle<promise_type> handle;
};

static Numbers squares(int last) {
    for (int i = 0; i < last; i++) co_yield i * i;
    throw std::runtime_error("no more");
}

int main() {
    auto numbers = squares(4);
    try {
        while (true) numbers.handle.resume(), std::cout << numbers.handle.promise().value << '\n';
    } catch (const std::exception &error) {
        std::cout << error.what() << '\n';
    }
    for (int n : std::views::iota(1, 10) | std::views::filter([](int n) { return n % 3 == 0; })) std::cout << n << '\n';
}
