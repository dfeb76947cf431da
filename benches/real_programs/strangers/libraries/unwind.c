// libunwind-dev: unwind lzma; -no-pie
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>

static int depth(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    int frames = 0, has_found_main = 0;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    do {
        unw_proc_info_t info;
        unw_get_proc_info(&cursor, &info);
        extern int main(void);
        has_found_main |= info.start_ip == (unw_word_t)&main;
        if (has_found_main) break;
        frames++;
    } while (unw_step(&cursor) > 0);
    printf("main found: %d\n", has_found_main);
    return frames;
}

__attribute__((noinline)) static int nested(int levels) { return levels ? nested(levels - 1) : depth(); }

int main(void) {
    printf("%d\n", nested(3) > 0);
    return 0;
}
