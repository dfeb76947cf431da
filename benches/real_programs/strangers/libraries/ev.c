// libev-dev: ev; m
#include <ev.h>
#include <stdio.h>
#include <unistd.h>

static int pipes[2], count;

static void readable(struct ev_loop *loop, ev_io *io, int events) {
    char byte;
    if (read(io->fd, &byte, 1) == 1 && byte == 'c') ev_io_stop(loop, io);
    printf("%c %d\n", byte, events == EV_READ);
}
static void timeout(struct ev_loop *loop, ev_timer *timer, int events) {
    (void)events;
    if (write(pipes[1], "abc" + count++, 1) != 1 || count == 3) ev_timer_stop(loop, timer);
}

int main(void) {
    ev_io io;
    ev_timer timer;
    if (pipe(pipes)) return 1;
    ev_io_init(&io, readable, pipes[0], EV_READ);
    ev_io_start(EV_DEFAULT, &io);
    ev_timer_init(&timer, timeout, 0.001, 0.001);
    ev_timer_start(EV_DEFAULT, &timer);
    ev_run(EV_DEFAULT, 0);
    puts("end");
    return 0;
}
