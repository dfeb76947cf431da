/* Machine code of a function that returns a number. */
#ifndef NUMBER_H
#define NUMBER_H

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
/* mov $NUMBER, %eax; ret */
#define CODE_SIZE 6
#define EDGE_OF_CALL JITTISON_EDGE_BRANCH32
#define EDGE_OF_ANOTHER_MACHINE (JITTISON_EDGE_AARCH64 + 283)
static inline void code_of_number(unsigned char *code, uint32_t number) {
    code[0] = 0xb8;
    memcpy(code + 1, &number, sizeof number);
    code[5] = 0xc3;
}
#else
/* mov w0, #LOW; movk w0, #HIGH, lsl 16; ret */
#define CODE_SIZE 12
#define EDGE_OF_CALL (JITTISON_EDGE_AARCH64 + 283) /* R_AARCH64_CALL26 */
#define EDGE_OF_ANOTHER_MACHINE JITTISON_EDGE_THREAD_LOCAL_PAIR32
static inline void code_of_number(unsigned char *code, uint32_t number) {
    const uint32_t words[] = {0x52800000 | (number & 0xffff) << 5, 0x72a00000 | number >> 16 << 5, 0xd65f03c0};
    memcpy(code, words, sizeof words);
}
#endif

#endif
