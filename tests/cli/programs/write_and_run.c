/* A section that is writable and executable. */
__asm__(".section both,\"awx\",@progbits\n.globl helper\nhelper: ret\n.text\n");
int main(void) { return 0; }
