// Exceptions between objects, and uncaught exceptions. The first argument selects the case.
#include "exceptions.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

static const char *mode = "";
static bool is(const char *name) { return !std::strcmp(mode, name); }

struct Fragile {
    Fragile(const char *name) {
        if (std::getenv("JITTISON_TEST") && !std::strcmp(std::getenv("JITTISON_TEST"), name)) throw Problem("constructor", 1);
    }
};
static Noisy before("static before");
static Fragile fragile("throw-in-constructor");
static Noisy after("static after");

static void cannot_throw() noexcept { fail(1, 5); }
static void my_terminate() {
    std::puts("my terminate handler");
    std::fflush(stdout);
    std::_Exit(33);
}

int main(int argc, char **argv) {
    if (argc > 1) mode = argv[1];
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    try {
        Noisy local("in try");
        fail(3, 10);
    } catch (const Problem &problem) {
        std::printf("caught %s, %d\n", problem.what(), problem.code);
    }
    std::printf("guarded %d %d\n", guarded(0), guarded(20));
    try {
        try {
            fail_with_number(7);
        } catch (int number) {
            std::printf("number %d, again\n", number);
            throw;
        }
    } catch (...) {
        std::exception_ptr current = std::current_exception();
        try {
            std::rethrow_exception(current);
        } catch (int number) {
            std::printf("number %d, last\n", number);
        }
    }
    try {
        (void)std::string("short").at(99);
    } catch (const std::out_of_range &) {
        std::puts("thrown by the library");
    }
    Noisy local("in main");
    if (is("uncaught")) fail(2, 30);
    if (is("uncaught-number")) fail_with_number(8);
    if (is("noexcept")) cannot_throw();
    if (is("terminate-handler")) std::set_terminate(my_terminate), fail(2, 30);
    if (is("uncaught-at-exit")) std::atexit([] { fail(1, 40); });
    if (is("exit")) std::exit(6);
    return 2;
}
