// The C++ header: owners release, results carry errors, functions have types, exceptions pass.
// Arguments: an object with `int add(int, int)`; one whose initialiser throws an int.
#include "check.hpp"
#include <jittison.hpp>

#include <cstdio>
#include <cstdlib>

static int host() { return 5; }

int main(int argc, char **argv) {
    CHECK(argc == 3);
    jittison::session session = jittison::session::create().value();
    jittison::dylib dylib = session.main_dylib().value();
    CHECK(dylib.name().value() == "main");
    jittison::tracker tracker = session.create_tracker(dylib).value();
    session.add_object_file(tracker, argv[1]).value();
    tracker.define("host", host).value();
    bool called = false;
    {
        jittison::function<int(int, int)> add = session.lookup<int(int, int)>(dylib, "add").value();
        CHECK(add(2, 3) == 10);
        auto refused = tracker.try_remove();
        CHECK(!refused && refused.error().code() == JITTISON_ERROR_IN_USE && refused.error().message().size() > 10);

        jittison::function<int(int, int)> moved = std::move(add);
        CHECK(add.get().bits == 0 && moved(1, 1) == 7);
        {
            jittison::guard guard(session.get());
            int (*found)(int, int) = guard.lookup<int(int, int)>(dylib, "add").value();
            CHECK(found(0, 0) == 5);
        }
        jittison::removal removal = tracker.remove().value();
        CHECK(!removal.is_complete().value() && !removal.obstacles().value().empty());
        removal.on_complete([&](jittison::result<void> outcome) { called = outcome.has_value(); }).value();
        CHECK(!called && moved(1, 1) == 7);
    }
    CHECK(called);

    auto missing = session.lookup<int()>(dylib, "add");
    CHECK(!missing && missing.error().code() == JITTISON_ERROR_SYMBOLS_NOT_FOUND && missing.error().symbol() == "add");
    bool thrown = false;
    try {
        session.lookup<int()>(dylib, "add").value();
    } catch (const jittison::error &error) {
        thrown = error.what() == error.message();
    }
    CHECK(thrown);

    // An exception of an initialiser passes through the library.
    jittison::tracker second = session.create_tracker(dylib).value();
    session.add_object_file(second, argv[2]).value();
    int caught = 0;
    try {
        (void)session.lookup<int()>(dylib, "unlucky");
    } catch (int number) {
        caught = number;
    }
    CHECK(caught == 7);
    session.end().value();
    return 0;
}
