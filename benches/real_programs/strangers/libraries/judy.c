// libjudy-dev: Judy
#include <Judy.h>
#include <stdio.h>

int main(void) {
    Pvoid_t array = NULL, text = NULL;
    Word_t index = 0, *value, sum = 0, bytes;
    for (Word_t i = 0; i < 20000; i++) {
        JLI(value, array, i * 7919 % 100003);
        *value = i;
    }
    JLF(value, array, index);
    while (value) {
        sum = sum * 31 + *value;
        JLN(value, array, index);
    }
    JSLI(value, text, (const uint8_t *)"word");
    *value = 5;
    JSLG(value, text, (const uint8_t *)"word");
    printf("%lu %lu ", sum, *value);
    JLFA(bytes, array);
    printf("%d\n", bytes > 1000);
    return 0;
}
