// jittison.hpp - C++17 over jittison.h: handles that release themselves, results, typed functions.
//
// Each class is a move-only owner of one handle. A call that can fail returns a jittison::result: check it with `if`, take the
// value with `*`, or call value(), which throws jittison::error. The rules of jittison.h hold here, too; so do its
// promises about linked code.
//
// Callbacks are objects with virtual functions, or std::function. Those that may fail throw: the exception becomes an error of the
// library, whose message is what(). Raw handles that they get are valid during the call.
#ifndef JITTISON_HPP
#define JITTISON_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "jittison.h"

namespace jittison {

inline jittison_str to_str(std::string_view text) noexcept { return jittison_str{text.data(), text.size()}; }
inline std::string_view to_view(jittison_str text) noexcept { return std::string_view(text.data, text.length); }

// An error of a call. Copies share one error object.
class error : public std::exception {
public:
    explicit error(jittison_error *raw) : object_(raw, jittison_error_free) {}

    jittison_code code() const noexcept { return jittison_error_code(object_.get()); }
    // The code of the first failure, which led to this one.
    jittison_code root_code() const noexcept { return jittison_error_root_code(object_.get()); }
    bool is_retriable() const noexcept { return jittison_error_is_retriable(object_.get()); }
    std::string_view message() const noexcept { return to_view(jittison_error_message(object_.get())); }
    std::string_view object() const noexcept { return to_view(jittison_error_object(object_.get())); }
    std::string_view symbol() const noexcept { return to_view(jittison_error_symbol(object_.get())); }
    const char *what() const noexcept override { return jittison_error_message(object_.get()).data; }

private:
    std::shared_ptr<jittison_error> object_;
};

// A value, or the error of the call.
template <class T>
class [[nodiscard]] result {
public:
    result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    result(jittison::error failure) : state_(std::in_place_index<1>, std::move(failure)) {}

    bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }
    // The value. Throws the error if there is none.
    T &value() & {
        throw_if_failed();
        return std::get<0>(state_);
    }
    T &&value() && {
        throw_if_failed();
        return std::get<0>(std::move(state_));
    }
    const T &value() const & {
        throw_if_failed();
        return std::get<0>(state_);
    }
    // The value, or another one.
    template <class U>
    T value_or(U &&other) && {
        return has_value() ? std::get<0>(std::move(state_)) : static_cast<T>(std::forward<U>(other));
    }
    // The value. Only if there is one.
    T &operator*() & noexcept { return *std::get_if<0>(&state_); }
    const T &operator*() const & noexcept { return *std::get_if<0>(&state_); }
    T &&operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
    T *operator->() noexcept { return std::get_if<0>(&state_); }
    const T *operator->() const noexcept { return std::get_if<0>(&state_); }
    // The error. Only if there is no value.
    const jittison::error &error() const noexcept { return *std::get_if<1>(&state_); }

private:
    void throw_if_failed() const {
        if (!has_value()) {
            throw error();
        }
    }

    std::variant<T, jittison::error> state_;
};

// The outcome of a call without a value.
template <>
class [[nodiscard]] result<void> {
public:
    result() = default;
    result(jittison::error failure) : failure_(std::move(failure)) {}

    bool has_value() const noexcept { return !failure_; }
    explicit operator bool() const noexcept { return has_value(); }
    void value() const {
        if (failure_) {
            throw *failure_;
        }
    }
    const jittison::error &error() const noexcept { return *failure_; }

private:
    std::optional<jittison::error> failure_;
};

namespace detail {

inline result<void> outcome(jittison_error *raw) {
    if (raw != nullptr) {
        return error(raw);
    }
    return {};
}

// Calls a C function whose last parameter is an out-parameter of type Raw, and wraps what it writes.
template <class Value, class Raw, class Call>
result<Value> make(Call call) {
    Raw raw{};
    if (jittison_error *failure = call(&raw)) {
        return error(failure);
    }
    return Value(raw);
}

// Calls a C function whose last parameter is a removal, and wraps it.
template <class Removal, class Call>
result<Removal> make_removal(Call call) {
    return make<Removal, jittison_removal>(call);
}

// Runs the body of a callback. What it throws becomes an error.
template <class Body>
jittison_error *guarded(Body body) noexcept {
    try {
        body();
        return nullptr;
    } catch (const std::exception &exception) {
        return jittison_error_create(jittison_str_of(exception.what()));
    } catch (...) {
        return jittison_error_create(jittison_str_of("an exception of another type than std::exception"));
    }
}

template <class T>
void drop(void *context) {
    delete static_cast<T *>(context);
}

// Calls a C function that takes callbacks with the context of `callee`, which the library owns from then on, unless an argument is
// invalid.
template <class Value, class Raw, class T, class Call>
result<Value> make_with(std::unique_ptr<T> callee, Call call) {
    Raw raw{};
    jittison_error *failure = call(callee.get(), &raw);
    jittison_code code = jittison_error_code(failure);
    if (code != JITTISON_ERROR_INVALID_HANDLE && code != JITTISON_ERROR_INVALID_ARGUMENT) {
        callee.release();
    }
    if (failure != nullptr) {
        return error(failure);
    }
    return Value(raw);
}

inline std::vector<jittison_str> to_strs(const std::vector<std::string> &texts) {
    std::vector<jittison_str> views;
    for (const std::string &text : texts) {
        views.push_back(to_str(text));
    }
    return views;
}

inline result<std::string> text(jittison_error *failure, jittison_text *text) {
    if (failure != nullptr) {
        return error(failure);
    }
    std::string copy(to_view(jittison_text_view(text)));
    jittison_text_free(text);
    return copy;
}

// Owns a handle and releases it once.
template <class Raw, jittison_error *(*Release)(Raw)>
class owner {
public:
    explicit owner(Raw raw) noexcept : raw_(raw) {}
    owner(owner &&other) noexcept : raw_(std::exchange(other.raw_, Raw{})) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) {
            reset();
            raw_ = std::exchange(other.raw_, Raw{});
        }
        return *this;
    }
    ~owner() { reset(); }

    // The handle, which this object still owns.
    Raw get() const noexcept { return raw_; }
    // The handle, which the caller owns from here on.
    Raw release() noexcept { return std::exchange(raw_, Raw{}); }

private:
    void reset() noexcept {
        if (raw_.bits != 0) {
            jittison_error_free(Release(raw_));
        }
    }

    Raw raw_;
};

} // namespace detail

class dylib : public detail::owner<jittison_dylib, jittison_dylib_release> {
public:
    using owner::owner;

    result<std::string> name() const {
        jittison_text *text = nullptr;
        jittison_error *failure = jittison_dylib_name(get(), &text);
        return detail::text(failure, text);
    }
    // Appends a dylib to the link order.
    result<void> link_against(const dylib &other, std::uint32_t visibility = JITTISON_VISIBILITY_EXPORTED) {
        jittison_link_entry entry{other.get(), visibility, 0};
        return detail::outcome(jittison_dylib_add_to_link_order(get(), &entry, 1));
    }
};

// The ticket of a removal.
class removal : public detail::owner<jittison_removal, jittison_removal_release> {
public:
    using owner::owner;

    result<bool> is_complete() const {
        return detail::make<bool, bool>([&](bool *out) { return jittison_removal_is_complete(get(), out); });
    }
    // Waits at most `timeout_ms`. Returns whether the removal is complete.
    result<bool> wait(std::uint64_t timeout_ms = JITTISON_FOREVER) const {
        return detail::make<bool, bool>([&](bool *out) { return jittison_removal_wait(get(), timeout_ms, out); });
    }
    result<std::string> obstacles() const {
        jittison_text *text = nullptr;
        jittison_error *failure = jittison_removal_obstacles(get(), &text);
        return detail::text(failure, text);
    }
    // Calls `body` once, with the outcome, when the removal is complete. It must not throw.
    result<void> on_complete(std::function<void(result<void>)> body) const {
        auto context = std::make_unique<std::function<void(result<void>)>>(std::move(body));
        auto call = [](jittison_error *failure, void *context) {
            std::unique_ptr<std::function<void(result<void>)>> body(
                static_cast<std::function<void(result<void>)> *>(context));
            (*body)(detail::outcome(failure));
        };
        result<void> asked = detail::outcome(jittison_removal_on_complete(get(), call, context.get()));
        if (asked) {
            context.release();
        }
        return asked;
    }
};

// Owns what is added under it. Its destructor removes nothing.
class tracker : public detail::owner<jittison_tracker, jittison_tracker_release> {
public:
    using owner::owner;

    result<removal> remove() {
        return detail::make<removal, jittison_removal>(
            [&](jittison_removal *out) { return jittison_tracker_remove(get(), out); });
    }
    // Fails with JITTISON_ERROR_IN_USE if something pins the tracker.
    result<removal> try_remove() {
        return detail::make<removal, jittison_removal>(
            [&](jittison_removal *out) { return jittison_tracker_try_remove(get(), out); });
    }
    // Removes the trackers whose code refers to this one, too.
    result<removal> remove_cascade() {
        return detail::make_removal<removal>([&](jittison_removal *out) { return jittison_tracker_remove_cascade(get(), out); });
    }
    result<void> transfer_to(tracker &destination) {
        return detail::outcome(jittison_tracker_transfer(get(), destination.get()));
    }
    // Defines a name for an object or function of this program.
    template <class T>
    result<void> define(std::string_view name, T *address) {
        std::uint32_t flags = JITTISON_SYMBOL_EXPORTED;
        if constexpr (std::is_function_v<T>) {
            flags |= JITTISON_SYMBOL_CALLABLE;
        }
        jittison_absolute_symbol symbol{to_str(name), reinterpret_cast<std::uintptr_t>(address), flags, 0};
        return detail::outcome(jittison_tracker_define_absolute(get(), &symbol, 1));
    }
};

// A tracker whose destructor removes what it owns. An error of a resource manager is lost there: call remove() to see it.
class owning_tracker : public tracker {
public:
    explicit owning_tracker(tracker &&other) noexcept : tracker(std::move(other)) {}
    owning_tracker(owning_tracker &&) noexcept = default;
    owning_tracker &operator=(owning_tracker &&other) noexcept {
        if (this != &other) {
            remove_now_or_never();
            tracker::operator=(std::move(other));
        }
        return *this;
    }
    ~owning_tracker() { remove_now_or_never(); }

private:
    void remove_now_or_never() noexcept {
        if (get().bits != 0) {
            jittison_error_free(jittison_tracker_remove(get(), nullptr));
        }
    }
};

// Keeps the code of a symbol in memory, whatever its type.
class pin : public detail::owner<jittison_pin, jittison_pin_release> {
public:
    using owner::owner;

    static result<pin> create(const dylib &in, std::string_view name, std::uint64_t *address = nullptr) {
        return detail::make<pin, jittison_pin>(
            [&](jittison_pin *out) { return jittison_pin_create(in.get(), to_str(name), address, out); });
    }
    result<void> add_dependency(const dylib &in, std::string_view name) const {
        return detail::outcome(jittison_pin_add_dependency(get(), in.get(), to_str(name)));
    }
};

template <class Signature>
class function;

// A function of linked code, which stays in memory while this object lives. A call costs what a call by pointer costs.
template <class Return, class... Arguments>
class function<Return(Arguments...)> : public detail::owner<jittison_function, jittison_function_release> {
public:
    using pointer = Return (*)(Arguments...);

    explicit function(jittison_function raw) : owner(raw) {
        void *address = nullptr;
        jittison_error_free(jittison_function_address(raw, &address));
        pointer_ = reinterpret_cast<pointer>(address);
    }

    Return operator()(Arguments... arguments) const { return pointer_(std::forward<Arguments>(arguments)...); }
    // Valid while this object lives.
    pointer address() const noexcept { return pointer_; }

private:
    pointer pointer_;
};

// A guard of the thread that made it. It is neither moved nor copied.
class guard {
public:
    guard(const guard &) = delete;
    guard &operator=(const guard &) = delete;
    explicit guard(jittison_session session) { detail::outcome(jittison_guard_enter(session, &raw_)).value(); }
    ~guard() { jittison_error_free(jittison_guard_leave(raw_)); }

    // A function that stays in memory until the guard ends.
    template <class Signature>
    result<Signature *> lookup(const dylib &in, std::string_view name) const {
        void *address = nullptr;
        if (jittison_error *failure = jittison_guard_lookup(raw_, in.get(), to_str(name), &address)) {
            return error(failure);
        }
        return reinterpret_cast<Signature *>(address);
    }

private:
    jittison_guard raw_{};
};

// An entry of this thread's call into patched functions. It is neither moved nor copied.
class call {
public:
    call(const call &) = delete;
    call &operator=(const call &) = delete;
    explicit call(jittison_session session) { detail::outcome(jittison_call_enter(session, &raw_)).value(); }
    ~call() { jittison_error_free(jittison_call_leave(raw_)); }

private:
    jittison_call raw_{};
};

// A function whose target can be changed.
template <class Signature>
class stub : public detail::owner<jittison_stub, jittison_stub_release> {
public:
    using owner::owner;

    // The caller promises that the target stays in memory as long as it is called.
    result<void> redirect(Signature *target) const {
        return detail::outcome(jittison_stub_redirect(get(), reinterpret_cast<std::uintptr_t>(target)));
    }
    // The function is kept by its owner, not by the stub.
    result<void> redirect(const function<Signature> &target) const { return redirect(target.address()); }
};

// Adds to a graph that somebody owns.
class graph_editor {
public:
    explicit graph_editor(jittison_graph raw) noexcept : raw_graph_(raw) {}

    // A block of code, constants or data: JITTISON_POOL_... The bytes are copied. Returns its position.
    result<std::uint32_t> add_block(std::uint32_t pool, const void *bytes, std::size_t size, std::uint64_t align = 0) {
        jittison_new_block block{};
        block.pool = pool;
        block.content = bytes;
        block.content_size = size;
        block.align = align;
        return add_block(block);
    }
    // Sets `size` of the struct itself.
    result<std::uint32_t> add_block(jittison_new_block block) {
        block.size = sizeof block;
        return position([&](std::uint32_t *out) { return jittison_graph_add_block(raw_graph_, &block, out); });
    }
    // A block of code with an exported function at its start. Returns the position of the block.
    result<std::uint32_t> add_function(std::string_view name, const void *code, std::size_t size) {
        auto block = add_block(JITTISON_POOL_CODE, code, size);
        if (!block) {
            return block;
        }
        jittison_new_symbol symbol{};
        symbol.name = to_str(name);
        symbol.block = *block;
        symbol.symbol_size = size;
        symbol.flags = JITTISON_SYMBOL_CALLABLE;
        auto added = add_symbol(symbol);
        return added ? block : added;
    }
    // Sets `size` of the struct itself.
    result<std::uint32_t> add_symbol(jittison_new_symbol symbol) {
        symbol.size = sizeof symbol;
        return position([&](std::uint32_t *out) { return jittison_graph_add_symbol(raw_graph_, &symbol, out); });
    }
    result<std::uint32_t> add_external(std::string_view name, std::uint32_t kind = JITTISON_EXTERNAL_REQUIRED) {
        return position([&](std::uint32_t *out) { return jittison_graph_add_external(raw_graph_, to_str(name), kind, out); });
    }
    result<void> set_edges(std::uint32_t block, const std::vector<jittison_edge> &edges) {
        return detail::outcome(jittison_graph_set_edges(raw_graph_, block, edges.data(), edges.size()));
    }
    result<void> add_callee(std::string_view name) {
        return detail::outcome(jittison_graph_add_callee(raw_graph_, to_str(name)));
    }

private:
    template <class Call>
    static result<std::uint32_t> position(Call call) {
        return detail::make<std::uint32_t, std::uint32_t>(call);
    }

    jittison_graph raw_graph_;
};

// A graph of blocks, symbols and edges. It is handed over once.
class graph : public detail::owner<jittison_graph, jittison_graph_release> {
public:
    using owner::owner;

    static result<graph> create(std::string_view name) {
        return detail::make<graph, jittison_graph>([&](jittison_graph *out) { return jittison_graph_create(to_str(name), out); });
    }
    graph_editor edit() const noexcept { return graph_editor(get()); }
};

// A new version of patched functions. Without a commit, its destructor removes it.
class patch : public detail::owner<jittison_patch, jittison_patch_release> {
public:
    using owner::owner;

    result<void> add_object(std::string_view name, const void *bytes, std::size_t size) {
        return detail::outcome(jittison_patch_add_object(get(), to_str(name), bytes, size));
    }
    result<void> add_object_file(std::string_view path) {
        return detail::outcome(jittison_patch_add_object_file(get(), to_str(path)));
    }
    result<void> add_graph(const graph &added) { return detail::outcome(jittison_patch_add_graph(get(), added.get())); }
    result<void> require(std::string_view function) {
        return detail::outcome(jittison_patch_require(get(), to_str(function)));
    }
    result<void> link() { return detail::outcome(jittison_patch_link(get())); }
    template <class Signature>
    result<function<Signature>> lookup(std::string_view name) const {
        return detail::make<function<Signature>, jittison_function>(
            [&](jittison_function *out) { return jittison_patch_lookup(get(), to_str(name), out); });
    }
    // Returns the number of the version.
    result<std::uint64_t> commit() {
        return detail::make<std::uint64_t, std::uint64_t>(
            [&](std::uint64_t *out) { return jittison_patch_commit(get(), out, nullptr); });
    }
};

// Functions that come in versions. They stay when this object is destroyed.
class patchable : public detail::owner<jittison_patchable, jittison_patchable_release> {
public:
    using owner::owner;

    result<patch> begin() {
        return detail::make<patch, jittison_patch>([&](jittison_patch *out) { return jittison_patch_begin(get(), out); });
    }
    // Returns the version whose commit was undone.
    result<std::uint64_t> rollback() {
        return detail::make<std::uint64_t, std::uint64_t>(
            [&](std::uint64_t *out) { return jittison_patchable_rollback(get(), out, nullptr); });
    }
    result<removal> remove() {
        return detail::make_removal<removal>([&](jittison_removal *out) { return jittison_patchable_remove(get(), out); });
    }
};

// What a reload did.
struct reload {
    jittison_reload facts;
    // A JSON object. See jittison_reloader_reload.
    std::string changes;
    // The removal of the versions that no caller reaches any more.
    removal retired;
};

// What a reload of several objects did.
struct reloaded_objects {
    // A JSON array. See jittison_reloader_reload_all.
    std::string changes;
    // The removal of the versions that no caller reaches any more.
    removal retired;
};

// A program whose objects are replaced while it runs. The newest versions stay when this object is destroyed.
class reloader : public detail::owner<jittison_reloader, jittison_reloader_release> {
public:
    using owner::owner;

    result<void> add_object(std::string_view name, const void *bytes, std::size_t size) {
        return detail::outcome(jittison_reloader_add_object(get(), to_str(name), bytes, size));
    }
    result<void> link() { return detail::outcome(jittison_reloader_link(get())); }
    result<jittison::reload> reload(std::string_view name, const void *bytes, std::size_t size) {
        jittison_reload facts{};
        facts.size = sizeof facts;
        jittison_text *changes = nullptr;
        jittison_removal retired{};
        if (jittison_error *failure = jittison_reloader_reload(get(), to_str(name), bytes, size, &facts, &changes, &retired)) {
            return error(failure);
        }
        const std::unique_ptr<jittison_text, decltype(&jittison_text_free)> owned(changes, jittison_text_free);
        removal of_versions(retired);
        return jittison::reload{facts, std::string(to_view(jittison_text_view(changes))), std::move(of_versions)};
    }
    // Replaces several objects as one. See jittison_reloader_reload_all.
    result<reloaded_objects> reload_all(const std::vector<jittison_reload_object> &objects) {
        jittison_text *changes = nullptr;
        jittison_removal retired{};
        if (jittison_error *failure =
                jittison_reloader_reload_all(get(), objects.data(), objects.size(), &changes, &retired)) {
            return error(failure);
        }
        const std::unique_ptr<jittison_text, decltype(&jittison_text_free)> owned(changes, jittison_text_free);
        removal of_versions(retired);
        return reloaded_objects{std::string(to_view(jittison_text_view(changes))), std::move(of_versions)};
    }
};

// What a resource manager does. See jittison_manager_callbacks.
class resource_manager {
public:
    virtual ~resource_manager() = default;
    virtual void remove(jittison_key key) = 0;
    virtual void transfer(jittison_key destination, jittison_key source) noexcept = 0;
    virtual std::uint64_t held_bytes(jittison_key) noexcept { return 0; }
};

// A resource manager that is registered with a session. It stays registered when this object is destroyed.
class manager : public detail::owner<jittison_manager, jittison_manager_release> {
public:
    using owner::owner;

    // Calls `body` with the key of a tracker, which can be neither removed nor transferred meanwhile. It only updates records.
    result<void> record(const tracker &under, const std::function<void(jittison_key)> &body) const {
        auto call = [](jittison_key key, void *context) { (*static_cast<const std::function<void(jittison_key)> *>(context))(key); };
        void *context = const_cast<std::function<void(jittison_key)> *>(&body);
        return detail::outcome(jittison_manager_record(get(), under.get(), call, context));
    }
    result<void> deregister() { return detail::outcome(jittison_manager_deregister(get())); }
};

// A generator of a dylib. It stays with it when this object is destroyed.
class generator : public detail::owner<jittison_generator, jittison_generator_release> {
public:
    // Defines names that a lookup misses.
    using body = std::function<void(jittison_dylib, const std::vector<jittison_request> &)>;
    using owner::owner;

    static result<generator> create(const dylib &in, body body) {
        jittison_generator_callbacks callbacks{};
        callbacks.size = sizeof callbacks;
        callbacks.generate = [](jittison_dylib dylib, const jittison_request *requests, std::size_t count, void *context) {
            return detail::guarded([&] {
                (*static_cast<generator::body *>(context))(dylib, std::vector<jittison_request>(requests, requests + count));
            });
        };
        callbacks.dropped = detail::drop<generator::body>;
        return detail::make_with<generator, jittison_generator>(
            std::make_unique<generator::body>(std::move(body)),
            [&](void *context, jittison_generator *out) { return jittison_generator_create(in.get(), &callbacks, context, out); });
    }
    // Returns whether the dylib had it.
    result<bool> remove_from(const dylib &from) {
        return detail::make<bool, bool>([&](bool *out) { return jittison_generator_remove(get(), from.get(), out); });
    }
};

// A link during a callback of a plugin. It owns nothing. For what it lacks, call functions of jittison.h with raw().
class link {
public:
    explicit link(jittison_link raw) noexcept : raw_(raw) {}

    jittison_link raw() const noexcept { return raw_; }
    result<std::string> object() const {
        jittison_text *text = nullptr;
        jittison_error *failure = jittison_link_object(raw_, &text);
        return detail::text(failure, text);
    }
    // The position of a symbol. Empty if there is none.
    result<std::optional<std::uint32_t>> find(std::string_view name) const {
        std::uint32_t position = 0;
        if (jittison_error *failure = jittison_link_find(raw_, to_str(name), &position)) {
            return error(failure);
        }
        return position == UINT32_MAX ? std::optional<std::uint32_t>() : std::optional<std::uint32_t>(position);
    }
    result<jittison_symbol> symbol(std::uint32_t position) const {
        jittison_symbol symbol{};
        symbol.size = sizeof symbol;
        if (jittison_error *failure = jittison_link_symbol(raw_, position, &symbol)) {
            return error(failure);
        }
        return symbol;
    }
    result<jittison_block> block(std::uint32_t position) const {
        jittison_block block{};
        block.size = sizeof block;
        if (jittison_error *failure = jittison_link_block(raw_, position, &block)) {
            return error(failure);
        }
        return block;
    }
    result<std::vector<jittison_edge>> edges(std::uint32_t block) const {
        std::size_t count = 0;
        std::vector<jittison_edge> edges;
        if (jittison_error *failure = jittison_link_edges(raw_, block, nullptr, 0, &count)) {
            return error(failure);
        }
        edges.resize(count);
        if (jittison_error *failure = jittison_link_edges(raw_, block, edges.data(), count, &count)) {
            return error(failure);
        }
        return edges;
    }
    result<std::uint32_t> add_external(std::string_view name) const {
        return detail::make<std::uint32_t, std::uint32_t>([&](std::uint32_t *out) {
            return jittison_link_add_external(raw_, to_str(name), JITTISON_EXTERNAL_REQUIRED, out);
        });
    }
    result<void> redirect_edge(std::uint32_t block, std::size_t position, std::uint32_t symbol) const {
        return detail::outcome(jittison_link_redirect_edge(raw_, block, position, symbol));
    }
    result<void> set_content(std::uint32_t block, const void *bytes, std::size_t size) const {
        return detail::outcome(jittison_link_set_content(raw_, block, bytes, size));
    }

private:
    jittison_link raw_;
};

// What a plugin does in one link. What throws fails the link.
class link_hooks {
public:
    virtual ~link_hooks() = default;
    virtual void prepare(link) {}
    virtual void pruned(link) {}
    virtual void placed(link) {}
    virtual void bind(link, jittison_found_external *, std::size_t) {}
    virtual void fixed_up(link) {}
    // Called under locks: it only updates records.
    virtual void record(const jittison_initializer *, std::size_t) noexcept {}
};

// A plugin of a session. It stays with it when this object is destroyed.
class plugin : public detail::owner<jittison_plugin, jittison_plugin_release> {
public:
    // Makes the hooks of one link. Null: the plugin stays out of it. Must not throw.
    using body = std::function<std::unique_ptr<link_hooks>(const jittison_link_origin &)>;
    using owner::owner;

    // Returns whether its session had it.
    result<bool> remove() {
        return detail::make<bool, bool>([&](bool *out) { return jittison_plugin_remove(get(), out); });
    }
};

// What a compiler does: adds the function of the request to the graph, or throws.
using compiler = std::function<void(const jittison_compile_request &, graph_editor)>;

// Functions that are compiled at their first calls. They stay when this object is destroyed.
class on_demand : public detail::owner<jittison_on_demand, jittison_on_demand_release> {
public:
    using owner::owner;

    result<void> add(const tracker &under, const std::vector<std::string> &functions) {
        std::vector<jittison_str> names = detail::to_strs(functions);
        return detail::outcome(jittison_on_demand_add(get(), under.get(), names.data(), names.size()));
    }
    result<void> speculate(const dylib &in, std::string_view function) {
        return detail::outcome(jittison_on_demand_speculate(get(), in.get(), to_str(function)));
    }
};

// Functions that come in tiers. They stay when this object is destroyed.
class tiered : public detail::owner<jittison_tiered, jittison_tiered_release> {
public:
    using owner::owner;

    result<std::uint32_t> tier(std::string_view function) const {
        return detail::make<std::uint32_t, std::uint32_t>(
            [&](std::uint32_t *out) { return jittison_tiered_tier(get(), to_str(function), out); });
    }
    // Returns whether the next tier has begun.
    result<bool> reoptimize(std::string_view function) {
        return detail::make<bool, bool>([&](bool *out) { return jittison_tiered_reoptimize(get(), to_str(function), out); });
    }
    result<removal> remove() {
        return detail::make_removal<removal>([&](jittison_removal *out) { return jittison_tiered_remove(get(), out); });
    }
};

// Compiles functions in tiers.
class reoptimizer : public detail::owner<jittison_reoptimizer, jittison_reoptimizer_release> {
public:
    using owner::owner;

    // The caller promises that every tier has the signature with which the functions are called.
    result<tiered> add(const dylib &in, const std::vector<std::string> &functions) {
        std::vector<jittison_str> names = detail::to_strs(functions);
        return detail::make<tiered, jittison_tiered>([&](jittison_tiered *out) {
            return jittison_reoptimizer_add(get(), in.get(), names.data(), names.size(), out);
        });
    }
};

namespace detail {

inline jittison_compiler_callbacks compiler_callbacks() {
    jittison_compiler_callbacks callbacks{};
    callbacks.size = sizeof callbacks;
    callbacks.compile = [](const jittison_compile_request *request, jittison_graph graph, void *context) {
        return guarded([&] { (*static_cast<compiler *>(context))(*request, graph_editor(graph)); });
    };
    callbacks.dropped = drop<compiler>;
    return callbacks;
}

// The context of a link: its hooks.
template <void (link_hooks::*Hook)(link)>
jittison_error *call_hook(jittison_link raw, void *context) {
    return guarded([&] { (static_cast<link_hooks *>(context)->*Hook)(link(raw)); });
}

inline jittison_plugin_callbacks plugin_callbacks(std::string_view name) {
    jittison_plugin_callbacks callbacks{};
    callbacks.size = sizeof callbacks;
    callbacks.name = to_str(name);
    callbacks.begin = [](const jittison_link_origin *origin, void **link_context, void *context) {
        *link_context = (*static_cast<plugin::body *>(context))(*origin).release();
        return *link_context != nullptr;
    };
    callbacks.prepare = call_hook<&link_hooks::prepare>;
    callbacks.pruned = call_hook<&link_hooks::pruned>;
    callbacks.placed = call_hook<&link_hooks::placed>;
    callbacks.bind = [](jittison_link raw, jittison_found_external *found, std::size_t count, void *context) {
        return guarded([&] { static_cast<link_hooks *>(context)->bind(link(raw), found, count); });
    };
    callbacks.fixed_up = call_hook<&link_hooks::fixed_up>;
    callbacks.record = [](jittison_key, const jittison_initializer *initializers, std::size_t count, void *context) {
        static_cast<link_hooks *>(context)->record(initializers, count);
    };
    callbacks.end = [](bool, void *context) { delete static_cast<link_hooks *>(context); };
    callbacks.dropped = drop<plugin::body>;
    return callbacks;
}

inline jittison_manager_callbacks manager_callbacks() {
    jittison_manager_callbacks callbacks{};
    callbacks.size = sizeof callbacks;
    callbacks.remove = [](jittison_key key, void *context) {
        return guarded([&] { static_cast<resource_manager *>(context)->remove(key); });
    };
    callbacks.transfer = [](jittison_key destination, jittison_key source, void *context) {
        static_cast<resource_manager *>(context)->transfer(destination, source);
    };
    callbacks.held_bytes = [](jittison_key key, void *context) { return static_cast<resource_manager *>(context)->held_bytes(key); };
    callbacks.dropped = drop<resource_manager>;
    return callbacks;
}

} // namespace detail

// A session. The destructor ends it.
class session : public detail::owner<jittison_session, jittison_session_destroy> {
public:
    using owner::owner;

    // Sets `size` of the options itself.
    static result<session> create(jittison_session_options options = {}) {
        options.size = sizeof options;
        return detail::make<session, jittison_session>(
            [&](jittison_session *out) { return jittison_session_create(&options, out); });
    }
    result<dylib> main_dylib() const {
        return detail::make<dylib, jittison_dylib>(
            [&](jittison_dylib *out) { return jittison_dylib_main(get(), out); });
    }
    result<dylib> create_dylib(std::string_view name) {
        return detail::make<dylib, jittison_dylib>(
            [&](jittison_dylib *out) { return jittison_dylib_create(get(), to_str(name), out); });
    }
    result<tracker> create_tracker(const dylib &in) {
        return detail::make<tracker, jittison_tracker>(
            [&](jittison_tracker *out) { return jittison_tracker_create(in.get(), out); });
    }
    result<void> add_object(const tracker &under, std::string_view name, const void *bytes, std::size_t size) {
        return detail::outcome(jittison_object_add(get(), under.get(), to_str(name), bytes, size));
    }
    result<void> add_object_file(const tracker &under, std::string_view path) {
        return detail::outcome(jittison_object_add_file(get(), under.get(), to_str(path)));
    }
    // The caller promises the signature, and that all objects that were added so far may run.
    template <class Signature>
    result<function<Signature>> lookup(const dylib &in, std::string_view name) {
        return detail::make<function<Signature>, jittison_function>(
            [&](jittison_function *out) { return jittison_function_lookup(get(), in.get(), to_str(name), out); });
    }
    result<void> add_graph(const tracker &under, const graph &added) {
        return detail::outcome(jittison_graph_add(get(), under.get(), added.get()));
    }
    result<void> link_graph(const tracker &under, const graph &added) {
        return detail::outcome(jittison_graph_link(get(), under.get(), added.get()));
    }
    // Defines `name` under a tracker for the function `aliasee` of `source`, which is linked at its first call.
    result<void> reexport_lazily(const tracker &under, const dylib &source, std::string_view name, std::string_view aliasee) {
        jittison_alias alias{to_str(name), to_str(aliasee), JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE, 0};
        return detail::outcome(jittison_alias_reexport_lazily(get(), under.get(), source.get(), &alias, 1));
    }
    // Defines a stub under a tracker. It does not keep its target in memory.
    template <class Signature>
    result<stub<Signature>> create_stub(const tracker &under, const dylib &in, std::string_view name, Signature *target) {
        jittison_stub_definition definition{to_str(name), reinterpret_cast<std::uintptr_t>(target)};
        if (jittison_error *failure = jittison_stub_create(get(), under.get(), &definition, 1)) {
            return error(failure);
        }
        return detail::make<stub<Signature>, jittison_stub>(
            [&](jittison_stub *out) { return jittison_stub_find(get(), in.get(), to_str(name), out); });
    }
    result<patchable> create_patchable(const dylib &in, const std::vector<std::string> &functions) {
        std::vector<jittison_str> names = detail::to_strs(functions);
        return detail::make<patchable, jittison_patchable>([&](jittison_patchable *out) {
            return jittison_patchable_create(get(), in.get(), names.data(), names.size(), nullptr, out);
        });
    }
    // The objects of the program belong to `tracker`.
    result<reloader> create_reloader(const tracker &of_program) {
        return detail::make<reloader, jittison_reloader>(
            [&](jittison_reloader *out) { return jittison_reloader_create(get(), of_program.get(), out); });
    }
    // Registers a resource manager, which the session owns from then on.
    result<manager> register_manager(std::unique_ptr<resource_manager> registered) {
        const jittison_manager_callbacks callbacks = detail::manager_callbacks();
        return detail::make_with<manager, jittison_manager>(std::move(registered), [&](void *context, jittison_manager *out) {
            return jittison_manager_create(get(), &callbacks, context, out);
        });
    }
    result<plugin> add_plugin(std::string_view name, plugin::body body) {
        const jittison_plugin_callbacks callbacks = detail::plugin_callbacks(name);
        return detail::make_with<plugin, jittison_plugin>(
            std::make_unique<plugin::body>(std::move(body)),
            [&](void *context, jittison_plugin *out) { return jittison_plugin_add(get(), &callbacks, context, out); });
    }
    result<on_demand> compile_on_demand(compiler body) {
        const jittison_compiler_callbacks callbacks = detail::compiler_callbacks();
        return detail::make_with<on_demand, jittison_on_demand>(
            std::make_unique<compiler>(std::move(body)),
            [&](void *context, jittison_on_demand *out) { return jittison_on_demand_create(get(), &callbacks, context, out); });
    }
    // `calls` has a number for each tier but the last.
    result<reoptimizer> reoptimize(compiler body, const std::vector<std::uint64_t> &calls) {
        const jittison_compiler_callbacks callbacks = detail::compiler_callbacks();
        return detail::make_with<reoptimizer, jittison_reoptimizer>(
            std::make_unique<compiler>(std::move(body)), [&](void *context, jittison_reoptimizer *out) {
                return jittison_reoptimizer_create(get(), &callbacks, context, calls.data(), calls.size(), out);
            });
    }
    result<jittison_memory_statistics> memory_statistics() const {
        jittison_memory_statistics statistics{};
        statistics.size = sizeof statistics;
        if (jittison_error *failure = jittison_memory_statistics_read(get(), &statistics)) {
            return error(failure);
        }
        return statistics;
    }
    // Ends the session now, and says whether a resource manager failed.
    result<void> end() { return detail::outcome(jittison_session_destroy(release())); }
};

} // namespace jittison

#endif
