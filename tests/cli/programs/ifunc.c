/* Chooses a function when it is loaded. */
static int one(void) { return 1; }
static void *choose(void) { return (void *)one; }
int chosen(void) __attribute__((ifunc("choose")));
int main(void) { return chosen(); }
