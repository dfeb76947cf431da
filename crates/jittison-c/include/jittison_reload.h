/* Reload points of programs that `jittison watch` runs, or that were started with libjittison_hot_preload.so.
 *
 * A thread that never returns from its first function keeps every replaced version of every object in memory: it may be inside of
 * each. At a reload point it says that it is inside the versions of the functions on its stack only.
 *
 *     for (;;) {
 *         step(state);
 *         jittison_reload_point();
 *     }
 *
 * A function that never returns stays as it was. It goes on in its new version if it calls itself by its address:
 *
 *     int loop(struct state *state) {
 *         for (;;) {
 *             step(state);
 *             if (jittison_reload_point())
 *                 return jittison_newest(loop)(state);
 *         }
 *     }
 *
 * A plain `return loop(state)` does not: compilers turn it into a jump inside the old version. The call must become a jump (gcc and
 * clang do that with -O2), or the stack grows with each reload and keeps the old versions. Or the function returns, and its caller
 * calls it again.
 *
 * Natively, and under `jittison run`, a reload point does nothing and gives 0. The program is linked without a library. If it was started
 * with libjittison_hot_preload.so, a reload point frees replaced versions, too, and gives 0 in code that was not linked since.
 */
#ifndef JITTISON_RELOAD_H
#define JITTISON_RELOAD_H

#ifdef __cplusplus
extern "C" {
#endif

/* Passes a reload point. Gives 1 if the object of the calling function was reloaded since this version of it, else 0.
 *
 * The caller promises that this thread uses nothing of a replaced version afterwards, except the functions that are on its stack and
 * what those name. So it may not use an address of a string literal, a constant, a table of virtual functions or a `static`
 * function that it got from a version which is replaced and not on its stack. If no thread does, the version is freed.
 *
 * Do not call it in a signal handler. A thread with several stacks (coroutines) calls it only while no suspended stack has a frame of a
 * replaced version. A call on a stack other than the thread's own frees nothing. */
extern int jittison_reload_point(void) __attribute__((weak));

/* Gives what jittison_reload_point gives, and frees nothing. */
extern int jittison_is_replaced(void) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#define jittison_reload_point() (jittison_reload_point ? jittison_reload_point() : 0)

#define jittison_is_replaced() (jittison_is_replaced ? jittison_is_replaced() : 0)

/* The address of a function, of which the compiler knows nothing. A call by it reaches the newest version. */
#define jittison_newest(function)                              \
    __extension__({                                            \
        __typeof__(&(function)) jittison_address = &(function); \
        __asm__("" : "+r"(jittison_address));                  \
        jittison_address;                                      \
    })

#endif
