#include "ball.h"
#include <stdio.h>

/* Keeps its value when this file is edited. */
static int bounces;

void move(struct ball *ball) {
    int next = ball->place + ball->speed;
    if (next < 0 || next >= WIDTH) {
        ball->speed = -ball->speed;
        bounces++;
    }
    ball->place += ball->speed;
}

void draw(const struct ball *ball) {
    printf("|%*s%*s| %d\n", ball->place + 1, "o", WIDTH - ball->place - 1, "", bounces);
    fflush(stdout);
}
