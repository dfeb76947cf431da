/* A section that may be written and run, which no object should have. */
__asm__(".section both,\"awx\",@progbits\n.globl helper\nhelper: ret\n.text\n");
int main(void) { return 0; }
