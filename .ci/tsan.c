// What ThreadSanitizer cannot see in a standard library that was compiled without it, and in the loader. `.ci/tsan` links
// this in and sends the calls here (`ld --wrap`), with the mangled names of the toolchain at hand in the macros.
//
// Each wrapper says what the real function guarantees, no more. Without them every contended `std::sync::Mutex`, every
// `Barrier`, every scope of threads and every last `Arc` would be reported as a race.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

#define GLUE(a, b) a##b
#define NAME(a, b) GLUE(a, b)
#define REAL(name) NAME(__real_, name)
#define WRAP(name) NAME(__wrap_, name)

// The last handle of an `Arc` is dropped behind `fence(Acquire)`, which ThreadSanitizer does not model; a library built
// for it loads with `Acquire` instead. Here the release subtraction itself acquires. This hides a missing acquire
// after a `fetch_sub(Release)` of our own, and nothing else: the weaker and the stronger orders stay as they are.
enum { RELEASE = 3, ACQUIRE_RELEASE = 4 };
uint64_t __real___tsan_atomic64_fetch_sub(volatile uint64_t *address, uint64_t value, int order);
uint64_t __wrap___tsan_atomic64_fetch_sub(volatile uint64_t *address, uint64_t value, int order) {
    return __real___tsan_atomic64_fetch_sub(address, value, order == RELEASE ? ACQUIRE_RELEASE : order);
}

// `sys::sync::Mutex::lock_contended`: the lock is held on return. The uncontended lock and the unlock are inlined and
// instrumented.
void REAL(LOCK_CONTENDED)(void *mutex);
void WRAP(LOCK_CONTENDED)(void *mutex) {
    REAL(LOCK_CONTENDED)(mutex);
    __tsan_acquire(mutex);
}

// `sys::sync::Condvar::wait`: gives the lock up and takes it again.
void REAL(CONDVAR_WAIT)(void *condvar, void *mutex);
void WRAP(CONDVAR_WAIT)(void *condvar, void *mutex) {
    __tsan_release(mutex);
    REAL(CONDVAR_WAIT)(condvar, mutex);
    __tsan_acquire(mutex);
}

// `sys::sync::RwLock::read_contended`, `write_contended`: as for the mutex.
void REAL(READ_CONTENDED)(void *lock);
void WRAP(READ_CONTENDED)(void *lock) {
    REAL(READ_CONTENDED)(lock);
    __tsan_acquire(lock);
}
void REAL(WRITE_CONTENDED)(void *lock);
void WRAP(WRITE_CONTENDED)(void *lock) {
    REAL(WRITE_CONTENDED)(lock);
    __tsan_acquire(lock);
}

// `sys::sync::Once::call`: what was done in it is seen by everybody who finds it done. That look is instrumented.
void REAL(ONCE_CALL)(void *once, bool ignore_poisoning, void *closure, void *table, void *location);
void WRAP(ONCE_CALL)(void *once, bool ignore_poisoning, void *closure, void *table, void *location) {
    REAL(ONCE_CALL)(once, ignore_poisoning, closure, table, location);
    __tsan_acquire(once);
    __tsan_release(once);
}

// The kernel moves pages away from a range before the loader maps a library there. The loader's own mappings are not seen, so
// that the library's bytes would look unordered with what was written to the pages before they were moved.
static char loader_mappings;
void *REAL(mremap)(void *from, size_t size, size_t new_size, int flags, void *to);
void *WRAP(mremap)(void *from, size_t size, size_t new_size, int flags, void *to) {
    __tsan_release(&loader_mappings);
    return REAL(mremap)(from, size, new_size, flags, to);
}
void *REAL(dlopen)(const char *path, int flags);
void *WRAP(dlopen)(const char *path, int flags) {
    void *library = REAL(dlopen)(path, flags);
    __tsan_acquire(&loader_mappings);
    return library;
}

// `Barrier::wait`: what anybody did before it, everybody sees after it.
bool REAL(BARRIER_WAIT)(void *barrier);
bool WRAP(BARRIER_WAIT)(void *barrier) {
    __tsan_release(barrier);
    bool is_leader = REAL(BARRIER_WAIT)(barrier);
    __tsan_acquire(barrier);
    return is_leader;
}

// `ScopeData::decrement_num_running_threads`: the last thing a scoped thread does. The end of the scope reads the count,
// instrumented, wherever among the first words the compiler put it.
void REAL(SCOPE_LEAVE)(void *scope, bool panicked);
void WRAP(SCOPE_LEAVE)(void *scope, bool panicked) {
    for (int word = 0; word < 3; word++) __tsan_release((uint64_t *)scope + word);
    REAL(SCOPE_LEAVE)(scope, panicked);
}
