// C++ with every feature that needs platform support. The output shows the order of events and is always the same.
#include "everything.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>
#include <typeinfo>

namespace {

thread_local int plain = 7;
thread_local long zeroed[3];
thread_local Witness *last_witness;
thread_local Witness per_thread("thread-local of main module");
Witness global("global of main module");

__attribute__((constructor(101))) void early() { std::puts("constructor 101"); }
__attribute__((constructor(102))) void later() { std::puts("constructor 102"); }
__attribute__((destructor)) void last() { std::puts("destructor function"); }

int counter_of(const char *who) {
    static Witness witness("function-local");
    static thread_local int calls = 100;
    std::cout << who << " calls " << ++calls << std::endl;
    return calls;
}

void thread_body(const char *who, int step) {
    plain += step;
    zeroed[step % 3] += step;
    module_calls += step;
    module_name += who;
    last_witness = &per_thread;
    counter_of(who);
    counter_of(who);
    std::cout << who << ": plain " << plain << ", zeroed " << zeroed[0] << zeroed[1] << zeroed[2] << ", module calls "
              << module_calls << ", module name " << module_name << ", witness " << last_witness->name
              << ", static of other module " << other_module_static() << std::endl;
}

void exceptions() {
    try {
        call_and_throw(3, [](int depth) { throw Refusal(40 + depth); });
    } catch (const std::runtime_error &error) {
        auto refusal = dynamic_cast<const Refusal *>(&error);
        std::cout << "caught " << error.what() << ", code " << (refusal ? refusal->code : -1) << std::endl;
    }
    try {
        std::string("short").at(99);
    } catch (const std::out_of_range &) {
        std::cout << "caught what libstdc++ threw" << std::endl;
    }
    std::exception_ptr carried;
    std::thread([&] {
        try {
            throw 42;
        } catch (...) {
            carried = std::current_exception();
        }
    }).join();
    try {
        std::rethrow_exception(carried);
    } catch (int value) {
        std::cout << "carried over from a thread: " << value << std::endl;
    }
}

void types() {
    Duck duck;
    Animal *animals[] = {&duck, animal_from_other_module()};
    for (Animal *animal : animals) {
        auto winged = dynamic_cast<Winged *>(animal);
        std::cout << animal->name() << " " << typeid(*animal).name() << " wings " << (winged ? winged->wings() : 0)
                  << std::endl;
    }
    std::cout << "one type in both modules: " << (typeid(Duck) == type_from_other_module()) << std::endl;
    delete animals[1];
}

// Uses a thread-local variable of libstdc++, which the local TLS models exclude.
void once() {
#ifndef ONLY_OWN_TLS
    static std::once_flag flag;
    for (int round = 0; round < 3; round++)
        std::call_once(flag, [round] { std::cout << "once, in round " << round << std::endl; });
    std::once_flag again;
    try {
        std::call_once(again, [] { throw Refusal(1); });
    } catch (const Refusal &) {
        std::call_once(again, [] { std::cout << "once more after a throw" << std::endl; });
    }
#endif
}

} // namespace

int main(int count, char **arguments) {
    std::cout << "main with " << count - 1 << " arguments";
    for (int index = 1; index < count; index++) std::cout << " [" << arguments[index] << "]";
    std::cout << std::endl;
    std::atexit([] { std::cout << "atexit of main" << std::endl; });

    thread_body("main", 1);
    std::thread(thread_body, "first", 2).join();
    std::thread(thread_body, "second", 3).join();
    thread_body("main", 4);
    exceptions();
    types();
    once();
    shared_count() += 1;
    std::cout << "shared count " << shared_count() << std::endl;

    // Two threads that run at the same time have different TLS blocks.
    int *here = &plain, *there = nullptr;
    std::thread([&] { there = &plain; }).join();
    std::cout << "own block " << (here != there) << std::endl;
    return 3;
}
