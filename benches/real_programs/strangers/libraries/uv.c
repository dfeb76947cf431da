// libuv1-dev: uv_a; pthread dl
#include <stdio.h>
#include <uv.h>

static int ticks;
static long sums[4];

static void work(uv_work_t *request) {
    long *sum = request->data;
    for (long i = 0; i < 1000000; i++) *sum += i % (7 + (sum - sums));
}
static void tick(uv_timer_t *timer) {
    if (++ticks == 3) uv_close((uv_handle_t *)timer, NULL);
}
static void woken(uv_async_t *async) { uv_close((uv_handle_t *)async, NULL); }
static void wake(void *async) { uv_async_send(async); }

int main(void) {
    uv_loop_t *loop = uv_default_loop();
    uv_timer_t timer;
    uv_async_t async;
    uv_thread_t thread;
    uv_work_t works[4];
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, tick, 1, 1);
    uv_async_init(loop, &async, woken);
    uv_thread_create(&thread, wake, &async);
    for (int i = 0; i < 4; i++) works[i].data = &sums[i], uv_queue_work(loop, &works[i], work, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_thread_join(&thread);
    for (int i = 0; i < 4; i++) printf("%ld\n", sums[i]);
    printf("%d ticks, close: %d\n", ticks, uv_loop_close(loop));
    return 0;
}
