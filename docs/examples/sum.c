/* Calls `add` of add.c. Rebuild: gcc -c -O2 -fPIC -g0 sum.c */
int add(int a, int b);
int sum(int a, int b, int c) { return add(add(a, b), c); }
