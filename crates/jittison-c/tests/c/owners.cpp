// The owners of the C++ header: trackers that remove, pins, stubs, lazy functions, patches, reloaders, managers, generators, plugins,
// graphs, compilers. Each is moved once, and releases what it owns.
// Arguments: an object with `long one(void)`; one with `long via(void)` that calls `one`; one whose `one` returns 11.
#include "check.hpp"
#include "number.h"
#include <jittison.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <thread>

static long hundred() { return 100; }
static long two_hundred() { return 200; }

// Adds a function that returns a number.
static std::uint32_t add_number(jittison::graph_editor graph, std::string_view name, std::uint32_t number) {
    unsigned char code[CODE_SIZE];
    code_of_number(code, number);
    return graph.add_function(name, code, sizeof code).value();
}

static_assert(!std::is_copy_constructible_v<jittison::session> && std::is_nothrow_move_constructible_v<jittison::session>);
static_assert(!std::is_copy_constructible_v<jittison::graph> && std::is_nothrow_move_constructible_v<jittison::graph>);
static_assert(!std::is_copy_constructible_v<jittison::patch> && std::is_nothrow_move_constructible_v<jittison::patch>);
static_assert(!std::is_copy_constructible_v<jittison::plugin> && std::is_nothrow_move_constructible_v<jittison::plugin>);
static_assert(!std::is_move_constructible_v<jittison::guard> && !std::is_move_constructible_v<jittison::call>);

static void trackers_and_pins(jittison::session &session, jittison::dylib &dylib, const char *one, const char *via) {
    {
        jittison::owning_tracker first(session.create_tracker(dylib).value());
        jittison::owning_tracker second(session.create_tracker(dylib).value());
        session.add_object_file(first, one).value();
        session.add_object_file(second, via).value();
        CHECK((*session.lookup<long()>(dylib, "via"))() == 2);
        // What the moved-to tracker owned before is removed.
        second = std::move(first);
        CHECK(!session.lookup<long()>(dylib, "via") && session.lookup<long()>(dylib, "one"));
        std::uint64_t address = 0;
        jittison::pin pin = jittison::pin::create(dylib, "one", &address).value();
        jittison::pin moved = std::move(pin);
        jittison::removal removal = second.remove().value();
        CHECK(address != 0 && !removal.is_complete().value());
        { jittison::pin last = std::move(moved); }
        CHECK(removal.is_complete().value());
    }
    CHECK(session.memory_statistics().value().live_bytes == 0);
}

static void redirections(jittison::session &session, jittison::dylib &dylib, const char *one) {
    jittison::owning_tracker tracker(session.create_tracker(dylib).value());
    jittison::stub<long()> stub = session.create_stub(tracker, dylib, "stub", hundred).value();
    auto function = session.lookup<long()>(dylib, "stub").value();
    CHECK(function() == 100);
    stub.redirect(two_hundred).value();
    CHECK(function() == 200);

    jittison::dylib source = session.create_dylib("source").value();
    jittison::tracker of_source = session.create_tracker(source).value();
    session.add_object_file(of_source, one).value();
    session.reexport_lazily(tracker, source, "lazy", "one").value();
    CHECK(session.lookup<long()>(dylib, "lazy").value()() == 1);
}

static jittison::graph version(std::uint32_t number) {
    jittison::graph graph = jittison::graph::create("version").value();
    add_number(graph.edit(), "patched", number);
    return graph;
}

static void patches(jittison::session &session, jittison::dylib &dylib) {
    jittison::patchable patchable = session.create_patchable(dylib, {"patched"}).value();
    for (std::uint32_t number = 1; number <= 2; number++) {
        jittison::patch patch = patchable.begin().value();
        patch.add_graph(version(number * 10)).value();
        patch.require("patched").value();
        patch.link().value();
        CHECK(patch.lookup<long()>("patched").value()() == number * 10);
        CHECK(patch.commit().value() == number);
        CHECK(!patch.commit());
    }
    {
        auto function = session.lookup<long()>(dylib, "patched").value();
        jittison::call call(session.get());
        CHECK(function() == 20 && patchable.rollback().value() == 2 && function() == 10);
    }
    {
        // A patch that is dropped changes nothing.
        jittison::patch dropped = patchable.begin().value();
        dropped.add_graph(version(30)).value();
        dropped.link().value();
    }
    CHECK(session.lookup<long()>(dylib, "patched").value()() == 10);
    CHECK(patchable.remove().value().wait(10000).value());
}

static std::string read(const char *path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

static void reloads(jittison::session &session, const char *one, const char *eleven) {
    const std::string first = read(one), second = read(eleven);
    jittison::dylib dylib = session.create_dylib("reloaded").value();
    jittison::owning_tracker tracker(session.create_tracker(dylib).value());
    jittison::reloader reloader = session.create_reloader(tracker).value();
    reloader.add_object("one.o", first.data(), first.size()).value();
    reloader.link().value();
    auto function = session.lookup<long()>(dylib, "one").value();
    CHECK(function() == 1);
    {
        jittison::reload done = std::move(reloader.reload("one.o", second.data(), second.size()).value());
        CHECK(function() == 11 && done.facts.version == 1 && done.facts.is_changed);
        CHECK(done.changes.find("\"changed\":[\"one\"]") != std::string::npos);
        CHECK(done.retired.wait(10000).value());
    }
    auto refused = reloader.reload("other.o", second.data(), second.size());
    CHECK(!refused && refused.error().code() == JITTISON_ERROR_RELOAD_REFUSED && refused.error().object() == "other.o");
    CHECK(function() == 11);
    const jittison_str name = jittison::to_str("one.o");
    {
        jittison::reloaded_objects done = std::move(
            reloader.reload_all({{name, first.data(), first.size()}}).value());
        CHECK(function() == 1 && done.changes.find("\"object\":\"one.o\"") != std::string::npos);
        CHECK(done.retired.wait(10000).value());
    }
    auto twice = reloader.reload_all({{name, first.data(), first.size()}, {name, nullptr, 0}});
    CHECK(!twice && function() == 1);
}

// Counts what it is told, and refuses the first removal.
struct counting_manager : jittison::resource_manager {
    explicit counting_manager(std::map<jittison_key, int> &records, bool &is_dropped) : records(records), is_dropped(is_dropped) {}
    ~counting_manager() override { is_dropped = true; }
    void remove(jittison_key key) override {
        if (records[key] == 1) {
            records.erase(key);
            throw std::runtime_error("the device is busy");
        }
        records.erase(key);
    }
    void transfer(jittison_key destination, jittison_key source) noexcept override {
        records[destination] += records[source];
        records.erase(source);
    }
    std::map<jittison_key, int> &records;
    bool &is_dropped;
};

static void managers(jittison::session &session, jittison::dylib &dylib) {
    std::map<jittison_key, int> records;
    bool is_dropped = false;
    {
        jittison::manager manager = session.register_manager(std::make_unique<counting_manager>(records, is_dropped)).value();
        jittison::tracker first = session.create_tracker(dylib).value(), second = session.create_tracker(dylib).value();
        manager.record(first, [&](jittison_key key) { records[key] += 1; }).value();
        manager.record(second, [&](jittison_key key) { records[key] += 2; }).value();
        auto refused = first.remove();
        CHECK(!refused && refused.error().message() == "the device is busy" && records.size() == 1);
        jittison::tracker third = session.create_tracker(dylib).value();
        second.transfer_to(third).value();
        CHECK(records.size() == 1);
        (void)third.remove().value();
        CHECK(records.empty());
        manager.deregister().value();
        CHECK(!is_dropped);
    }
    CHECK(is_dropped);
}

static void generators(jittison::session &session, jittison::dylib &dylib) {
    jittison::generator generator =
        jittison::generator::create(dylib, [](jittison_dylib in, const std::vector<jittison_request> &requests) {
            for (const jittison_request &request : requests) {
                std::string_view name = jittison::to_view(request.name);
                if (name == "forbidden") {
                    throw std::runtime_error("not for you");
                }
                if (name == "generated") {
                    jittison_tracker raw{};
                    jittison_error_free(jittison_tracker_default(in, &raw));
                    jittison::tracker(raw).define(name, hundred).value();
                }
            }
        }).value();
    CHECK(session.lookup<long()>(dylib, "generated").value()() == 100);
    auto refused = session.lookup<long()>(dylib, "forbidden");
    CHECK(!refused && refused.error().message().find("not for you") != std::string_view::npos);
    CHECK(generator.remove_from(dylib).value() && !generator.remove_from(dylib).value());
}

// Sends the call of `via` to `other`.
struct redirecting_hooks : jittison::link_hooks {
    explicit redirecting_hooks(int &live) : live(live) { live++; }
    ~redirecting_hooks() override { live--; }
    void pruned(jittison::link link) override {
        if (link.object().value() == "refused") {
            throw std::runtime_error("this object is refused");
        }
        auto position = link.find("via").value();
        if (!position) {
            return;
        }
        jittison_symbol symbol = link.symbol(*position).value();
        CHECK(link.block(symbol.block).value().edge_count == link.edges(symbol.block).value().size());
        link.redirect_edge(symbol.block, 0, link.add_external("other").value()).value();
    }
    void bind(jittison::link, jittison_found_external *found, std::size_t count) override {
        CHECK(count == 0 || jittison::to_view(found[0].name) == "other");
    }
    int &live;
};

static void plugins(jittison::session &session, jittison::dylib &dylib, const char *via) {
    int live = 0, asked = 0;
    jittison::owning_tracker tracker(session.create_tracker(dylib).value());
    tracker.define("other", hundred).value();
    jittison::plugin plugin = session.add_plugin("redirecting", [&](const jittison_link_origin &) {
        asked++;
        return std::make_unique<redirecting_hooks>(live);
    }).value();
    session.add_object_file(tracker, via).value();
    CHECK(session.lookup<long()>(dylib, "via").value()() == 101 && live == 0 && asked == 1);
    jittison::graph refused = jittison::graph::create("refused").value();
    add_number(refused.edit(), "number", 5);
    auto outcome = session.link_graph(tracker, refused);
    CHECK(!outcome && outcome.error().message().find("this object is refused") != std::string_view::npos && live == 0);
    CHECK(plugin.remove().value());
}

static void compilers(jittison::session &session, jittison::dylib &dylib) {
    std::atomic<int> compiled = 0;
    auto compile = [&](const jittison_compile_request &request, jittison::graph_editor graph) {
        if (jittison::to_view(request.function) == "impossible") {
            throw std::runtime_error("no code for it");
        }
        compiled++;
        add_number(graph, jittison::to_view(request.symbol), request.tier);
    };
    jittison::owning_tracker tracker(session.create_tracker(dylib).value());
    jittison::on_demand layer = session.compile_on_demand(compile).value();
    layer.add(tracker, {"compiled"}).value();
    CHECK(compiled == 0 && session.lookup<long()>(dylib, "compiled").value()() == 1 && compiled == 1);

    jittison::reoptimizer tiers = session.reoptimize(compile, {1000000}).value();
    auto refused = tiers.add(dylib, {"impossible"});
    CHECK(!refused && refused.error().message().find("no code for it") != std::string_view::npos);
    jittison::tiered tiered = tiers.add(dylib, {"hot"}).value();
    CHECK(session.lookup<long()>(dylib, "hot").value()() == 1 && tiered.reoptimize("hot").value());
    while (tiered.tier("hot").value() == 1) {
        std::this_thread::yield();
    }
    CHECK(session.lookup<long()>(dylib, "hot").value()() == 2);
    CHECK(tiered.remove().value().wait(10000).value());
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    jittison::session made = jittison::session::create().value();
    jittison::session session = std::move(made);
    jittison::dylib dylib = session.main_dylib().value();
    trackers_and_pins(session, dylib, argv[1], argv[2]);
    redirections(session, dylib, argv[1]);
    patches(session, dylib);
    reloads(session, argv[1], argv[3]);
    managers(session, dylib);
    generators(session, dylib);
    plugins(session, dylib, argv[2]);
    compilers(session, dylib);
    jittison::graph graph = jittison::graph::create("sum").value();
    add_number(graph.edit(), "number", 7);
    jittison::tracker tracker = session.create_tracker(dylib).value();
    session.add_graph(tracker, graph).value();
    CHECK(!session.add_graph(tracker, graph));
    CHECK(session.lookup<long()>(dylib, "number").value()() == 7);
    session.end().value();
    return 0;
}
