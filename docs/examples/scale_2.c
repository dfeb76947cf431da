/* Second version of a patched function; `calls` keeps its value. Rebuild: gcc -c -O2 -fPIC -g0 scale_2.c */
int calls;
int scale(int n) { calls++; return n * 100 + calls; }
