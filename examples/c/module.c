/* A module for resources.c: it registers two handlers when it is loaded. */
void on_event(long (*handler)(long));

static long twice(long value) { return 2 * value; }
static long one_more(long value) { return value + 1; }

__attribute__((constructor)) static void start(void) {
    on_event(twice);
    on_event(one_more);
}
