// Declarations that the two modules of the program share.
#pragma once

#include <stdexcept>
#include <string>

struct Animal {
    virtual ~Animal() = default;
    virtual std::string name() const = 0;
};

struct Winged {
    virtual ~Winged() = default;
    virtual int wings() const { return 2; }
};

struct Duck : Animal, virtual Winged {
    std::string name() const override { return "duck"; }
};

struct Worm : Animal {
    std::string name() const override { return "worm"; }
};

struct Refusal : std::runtime_error {
    explicit Refusal(int code) : std::runtime_error("refused with " + std::to_string(code)), code(code) {}
    int code;
};

/// Prints a line when it is constructed and when it is destroyed.
struct Witness {
    explicit Witness(const char *name);
    ~Witness();
    const char *name;
};

/// A function-local static of an inline function: one for both modules.
inline int &shared_count() {
    static Witness witness("shared count");
    static int count = 0;
    return count;
}

extern thread_local int module_calls;        // defined in the other module
extern thread_local std::string module_name; // likewise, with an initialiser and a destructor
int other_module_static();
void call_and_throw(int depth, void (*callback)(int));
const std::type_info &type_from_other_module();
Animal *animal_from_other_module();
