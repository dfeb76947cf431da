/* First version of a patched function. Rebuild: gcc -c -O2 -fPIC -g0 scale_1.c */
int calls;
int scale(int n) { calls++; return n; }
