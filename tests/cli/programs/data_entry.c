/* `main_data` is data where a program has a function. */
int main_data = 1;
int entry(int argc, char **argv) { return argc + (argv[argc] == 0 ? 60 : 0); }
