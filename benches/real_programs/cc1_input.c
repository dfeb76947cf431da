// A short input for cc1: a system header, a loop to vectorise, a switch, a string.
#include <stdio.h>

static int weight(char letter) {
    switch (letter) {
    case 'a': return 3;
    case 'b': return 14;
    case 'c': return 15;
    case 'd': return 92;
    default: return letter & 7;
    }
}

double dot(const float *left, const float *right, int count) {
    double sum = 0;
    for (int index = 0; index < count; index++) sum += (double)left[index] * right[index];
    return sum;
}

int main(int count, char **arguments) {
    int total = 0;
    for (int index = 1; index < count; index++)
        for (const char *letter = arguments[index]; *letter; letter++) total += weight(*letter);
    return printf("%d\n", total) < 0;
}
