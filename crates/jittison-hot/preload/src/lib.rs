//! The library for `LD_PRELOAD`: its constructor calls [`jittison_hot::start`] before `main`. `docs/watch.md` says how to use it.
//! `threads.rs` has the functions that take the place of those of the C library.

mod threads;

/// The loader calls what is in this list, once.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    // Other preloaded libraries may have started threads.
    let is_only_thread = threads::is_only_thread();
    if jittison_hot::start() {
        // The objects are not those of programs that this one starts.
        // SAFETY: the loader calls this before `main`, so the program has no thread that reads the environment. The one that `start` has
        // begun does not.
        unsafe { std::env::remove_var(jittison_hot::VARIABLE) };
        if is_only_thread {
            // SAFETY: `start` has made a reloader. This is the thread of `main`, which begins afterwards, and others are of this library.
            unsafe { threads::count_all() };
        }
    }
}
