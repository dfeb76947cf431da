/* A ball between two walls. */
#define WIDTH 24

struct ball {
    int place, speed;
};

void move(struct ball *ball);
void draw(const struct ball *ball);
