// A ray tracer: spheres over a chequered floor, soft shadows, reflections; it writes a PPM picture. The threads take rows from
// one counter, and every pixel has its own random numbers, so the picture does not depend on the threads.
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 640, HEIGHT = 480, SAMPLES = 12, BOUNCES = 4, THREADS = 2, SPHERES = 24 };

typedef struct { double x, y, z; } Vector;
typedef struct { Vector centre, colour; double radius, mirror; } Sphere;
typedef struct { double distance; Vector point, normal, colour; double mirror; } Hit;

static Sphere spheres[SPHERES];
static unsigned char picture[HEIGHT][WIDTH][3];
static atomic_int next_row;
static const Vector LIGHT = {4, 7, -5};

static Vector add(Vector a, Vector b) { return (Vector){a.x + b.x, a.y + b.y, a.z + b.z}; }
static Vector scale(Vector a, double by) { return (Vector){a.x * by, a.y * by, a.z * by}; }
static Vector minus(Vector a, Vector b) { return add(a, scale(b, -1)); }
static Vector tint(Vector a, Vector b) { return (Vector){a.x * b.x, a.y * b.y, a.z * b.z}; }
static double dot(Vector a, Vector b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static Vector unit(Vector a) { return scale(a, 1 / sqrt(dot(a, a))); }

static double random_of(unsigned *state) {
    *state = *state * 747796405u + 2891336453u;
    const unsigned word = ((*state >> ((*state >> 28) + 4)) ^ *state) * 277803737u;
    return ((word >> 22) ^ word) / 4294967296.0;
}

static int find(Vector from, Vector along, Hit *hit) {
    hit->distance = INFINITY;
    for (int index = 0; index < SPHERES; index++) {
        const Sphere *sphere = &spheres[index];
        const Vector to = minus(sphere->centre, from);
        const double middle = dot(to, along);
        const double inside = sphere->radius * sphere->radius - dot(to, to) + middle * middle;
        if (inside < 0) continue;
        const double distance = middle - sqrt(inside);
        if (distance < 1e-6 || distance >= hit->distance) continue;
        hit->distance = distance;
        hit->point = add(from, scale(along, distance));
        hit->normal = scale(minus(hit->point, sphere->centre), 1 / sphere->radius);
        hit->colour = sphere->colour;
        hit->mirror = sphere->mirror;
    }
    const double floor_at = along.y < -1e-9 ? -from.y / along.y : INFINITY;
    if (floor_at > 1e-6 && floor_at < hit->distance) {
        hit->distance = floor_at;
        hit->point = add(from, scale(along, floor_at));
        hit->normal = (Vector){0, 1, 0};
        const int is_dark = ((int)floor(hit->point.x) + (int)floor(hit->point.z)) & 1;
        hit->colour = is_dark ? (Vector){.2, .2, .25} : (Vector){.9, .9, .85};
        hit->mirror = .15;
    }
    return isfinite(hit->distance);
}

static Vector trace(Vector from, Vector along, int bounces, unsigned *random) {
    Hit hit;
    if (!find(from, along, &hit)) {
        const double height = pow(fmax(along.y, 0), .6);
        return (Vector){.9 - .6 * height, .95 - .4 * height, 1};
    }
    const Vector start = add(hit.point, scale(hit.normal, 1e-6));
    const Vector wobble = {random_of(random) - .5, random_of(random) - .5, random_of(random) - .5};
    const Vector to_light = unit(minus(add(LIGHT, wobble), start));
    Hit shadow;
    const double lit = find(start, to_light, &shadow) ? 0 : fmax(dot(hit.normal, to_light), 0);
    const Vector bounced = minus(along, scale(hit.normal, 2 * dot(along, hit.normal)));
    const double shine = lit > 0 ? pow(fmax(dot(bounced, to_light), 0), 40) : 0;
    Vector colour = add(scale(hit.colour, .15 + .85 * lit), (Vector){shine, shine, shine});
    if (bounces > 0 && hit.mirror > 0) {
        const Vector seen = trace(start, bounced, bounces - 1, random);
        colour = add(scale(colour, 1 - hit.mirror), tint(scale(seen, hit.mirror), add(hit.colour, (Vector){.3, .3, .3})));
    }
    return colour;
}

static void draw(int row, int column) {
    unsigned random = (unsigned)(row * WIDTH + column) * 2654435761u + 1;
    Vector sum = {0, 0, 0};
    for (int sample = 0; sample < SAMPLES; sample++) {
        const double x = (column + random_of(&random) - WIDTH / 2.0) / HEIGHT;
        const double y = (HEIGHT / 2.0 - row - random_of(&random)) / HEIGHT;
        sum = add(sum, trace((Vector){0, 1.6, -6}, unit((Vector){x, y - .1, 1}), BOUNCES, &random));
    }
    const double channels[] = {sum.x, sum.y, sum.z};
    for (int channel = 0; channel < 3; channel++) {
        const double value = pow(fmin(channels[channel] / SAMPLES, 1), 1 / 2.2);
        picture[row][column][channel] = (unsigned char)(value * 255);
    }
}

static void *draw_rows(void *drawn) {
    int row;
    while ((row = atomic_fetch_add(&next_row, 1)) < HEIGHT) {
        for (int column = 0; column < WIDTH; column++) draw(row, column);
        ++*(int *)drawn;
    }
    return drawn;
}

int main(void) {
    for (int index = 0; index < SPHERES; index++) {
        const double turn = index * 2.399963, out = .45 * sqrt(index);
        const double radius = .22 + .18 * fabs(sin(index * 1.7));
        spheres[index] = (Sphere){
            .centre = {out * cos(turn) * 1.5, radius + .5 * fabs(sin(turn * 3)), out * sin(turn) * 1.5},
            .colour = {.5 + .5 * sin(turn), .5 + .5 * sin(turn + 2), .5 + .5 * sin(turn + 4)},
            .radius = radius,
            .mirror = index % 3 ? .35 : 0,
        };
    }
    pthread_t threads[THREADS];
    int drawn[THREADS] = {0}, rows = 0;
    for (int thread = 0; thread < THREADS; thread++)
        if (pthread_create(&threads[thread], NULL, draw_rows, &drawn[thread])) return perror("pthread_create"), 1;
    for (int thread = 0; thread < THREADS; thread++) {
        void *count;
        pthread_join(threads[thread], &count);
        rows += *(int *)count;
    }
    printf("P6\n%d %d\n255\n", WIDTH, HEIGHT);
    fwrite(picture, sizeof picture, 1, stdout);
    return rows == HEIGHT && fflush(stdout) == 0 ? 0 : 1;
}
