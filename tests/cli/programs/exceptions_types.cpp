// The vtable and the type information of the thrown type.
#include "exceptions.h"
#include <cstdio>

Problem::Problem(const std::string &text, int code) : std::runtime_error("problem: " + text), code(code) {}
Problem::~Problem() = default;
Noisy::Noisy(const char *name) : name(name) { std::printf("+ %s\n", name); }
Noisy::~Noisy() { std::printf("- %s\n", name); }
static Noisy of_types("static of types");
