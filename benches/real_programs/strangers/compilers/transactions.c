#include <pthread.h>
#include <stdio.h>

static long balance[2] = {1000, 0};

static void *move(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) __transaction_atomic { balance[0]--, balance[1]++; }
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, move, NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("%ld %ld\n", balance[0], balance[1]);
    return 0;
}
