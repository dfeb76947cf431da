/* Throws a ball, and draws it until a line is read. Edit ball.c meanwhile, under `jittison watch`. */
#include "ball.h"
#include <poll.h>

int main(void) {
    struct ball ball = {0, 1};
    struct pollfd input = {0, POLLIN, 0};
    while (poll(&input, 1, 100) == 0) {
        move(&ball);
        draw(&ball);
    }
    return 0;
}
