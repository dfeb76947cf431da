// Calls the program in the static library of `rust_program.rs`.
int rust_main(void);

int main(void) { return rust_main(); }
