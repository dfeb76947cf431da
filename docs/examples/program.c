/* A program of one object. Rebuild: gcc -c -O2 -fPIC -g0 program.c */
int main(int argc, char **argv) { (void)argv; return 40 + argc; }
