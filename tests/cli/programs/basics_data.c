/* Initialised, constant, relocated and zero data. */
#include "basics.h"

int numbers[] = {42, -7, 1000, 0, 13, 13, -500};
int number_count = sizeof numbers / sizeof *numbers;
int counter = 1, zero_sum;
int zeroes[4096];
int tentative = 5;
const char *const words[3] = {"alpha", "beta", "gamma"};
