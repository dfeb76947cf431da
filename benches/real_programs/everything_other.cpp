// The other module: frames that exceptions of main pass through, and definitions that main uses.
#include "everything.hpp"

#include <iostream>
#include <typeinfo>

thread_local int module_calls = 1000;
thread_local std::string module_name = std::string("of ");

namespace {
thread_local int file_local = 5;
thread_local Witness per_thread("thread-local of other module");
Witness global("global of other module");
} // namespace

Witness::Witness(const char *name) : name(name) { std::cout << "+ " << name << std::endl; }
Witness::~Witness() { std::cout << "- " << name << std::endl; }

int other_module_static() {
    static int calls = [] {
        std::atexit([] { std::cout << "atexit of other module" << std::endl; });
        return 0;
    }();
    shared_count()++;
    file_local += per_thread.name[0] == 't';
    return ++calls * 100 + file_local;
}

void call_and_throw(int depth, void (*callback)(int)) {
    Witness witness("frame that is unwound");
    if (depth > 1) return call_and_throw(depth - 1, callback);
    callback(depth);
}

const std::type_info &type_from_other_module() { return typeid(Duck); }
Animal *animal_from_other_module() { return new Worm; }
