#include <omp.h>
#include <stdio.h>

static int private_value = 3;
#pragma omp threadprivate(private_value)

int main(void) {
    long sum = 0, all = 0;
    omp_set_num_threads(4);
#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 10)
    for (int i = 0; i < 10000; i++) sum += i % 17;
#pragma omp parallel copyin(private_value) reduction(+ : all)
    {
        private_value += omp_get_thread_num();
        all += private_value;
#pragma omp barrier
#pragma omp single
        printf("%d threads\n", omp_get_num_threads());
    }
    printf("%ld %ld\n", sum, all);
    return 0;
}
