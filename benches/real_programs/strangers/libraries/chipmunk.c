// libchipmunk-dev: chipmunk; m pthread
#include <chipmunk/chipmunk.h>
#include <stdio.h>

int main(void) {
    cpSpace *space = cpSpaceNew();
    cpSpaceSetGravity(space, cpv(0, -100));
    cpShape *ground = cpSegmentShapeNew(cpSpaceGetStaticBody(space), cpv(-20, 5), cpv(20, -5), 0);
    cpShapeSetFriction(ground, 1);
    cpSpaceAddShape(space, ground);
    cpBody *ball = cpSpaceAddBody(space, cpBodyNew(1, cpMomentForCircle(1, 0, 5, cpvzero)));
    cpBodySetPosition(ball, cpv(0, 15));
    cpShapeSetFriction(cpSpaceAddShape(space, cpCircleShapeNew(ball, 5, cpvzero)), 0.7);
    for (int i = 0; i < 120; i++) cpSpaceStep(space, 1 / 60.0);
    printf("%.5f %.5f\n", cpBodyGetPosition(ball).x, cpBodyGetPosition(ball).y);
    return 0;
}
