// libevent-dev: event_core event_extra
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <string.h>

static void answer(struct bufferevent *pair, void *context) {
    struct evbuffer *in = bufferevent_get_input(pair);
    char *line = evbuffer_readln(in, NULL, EVBUFFER_EOL_LF);
    if (!line) return;
    printf("got %s\n", line);
    if (strlen(line) < 20) evbuffer_add_printf(bufferevent_get_output(pair), "%s%s\n", line, (char *)context);
    else event_base_loopbreak(bufferevent_get_base(pair));
}

int main(void) {
    struct event_base *base = event_base_new();
    struct bufferevent *pair[2];
    bufferevent_pair_new(base, 0, pair);
    bufferevent_setcb(pair[0], answer, NULL, NULL, "+left");
    bufferevent_setcb(pair[1], answer, NULL, NULL, "+right");
    bufferevent_enable(pair[0], EV_READ | EV_WRITE), bufferevent_enable(pair[1], EV_READ | EV_WRITE);
    evbuffer_add_printf(bufferevent_get_output(pair[0]), "start\n");
    event_base_dispatch(base);
    char *decoded = evhttp_uridecode("a%20b%2Fc", 0, NULL);
    printf("%s\n", decoded);
    return 0;
}
