// libgc-dev: gc; pthread dl
#include <gc.h>
#include <stdio.h>

struct node { struct node *next; long value; };
static struct node *list; // the only root
static int finalized;

static void count(void *object, void *data) { (void)object, (void)data, finalized++; }

int main(void) {
    GC_INIT();
    for (long i = 0; i < 300000; i++) {
        struct node *node = GC_MALLOC(sizeof *node);
        node->value = i;
        if (i % 1000 == 0) node->next = list, list = node;
        else if (i % 1000 == 1) GC_register_finalizer(node, count, NULL, NULL, NULL);
    }
    GC_gcollect();
    GC_invoke_finalizers();
    long sum = 0, length = 0;
    for (struct node *node = list; node; node = node->next) sum += node->value, length++;
    printf("%ld %ld, some finalized: %d, heap is small: %d\n", sum, length, finalized > 100, GC_get_heap_size() < 40u << 20);
    return 0;
}
