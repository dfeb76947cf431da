/* Linked by the examples of the documentation. Rebuild: gcc -c -O2 -fPIC -g0 add.c && ar rcsD libadd.a add.o */
int add(int a, int b) { return a + b; }
