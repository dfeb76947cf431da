// jittison.hpp - C++17 over jittison.h: handles that release themselves, results, typed functions.
//
// Each class is a move-only owner of one handle. A call that can fail returns a jittison::result: check it with `if`, take the
// value with `*`, or call value(), which throws jittison::error. The rules of jittison.h hold here, too; so do its
// promises about linked code.
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
    // The value. Only if there is one.
    T &operator*() & noexcept { return *std::get_if<0>(&state_); }
    T *operator->() noexcept { return std::get_if<0>(&state_); }
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
    // Ends the session now, and says whether a resource manager failed.
    result<void> end() { return detail::outcome(jittison_session_destroy(release())); }
};

} // namespace jittison

#endif
