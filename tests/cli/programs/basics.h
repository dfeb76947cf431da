extern int numbers[], number_count, counter, zero_sum, zeroes[4096], tentative;
extern const char *const words[3];
typedef double function(double);
double apply(function *f, double x);
function *chosen(int which);
const char *describe(int i, double d, char c, const char *s);
void count_up(void);
