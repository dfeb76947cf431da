/* Refers to three functions that are nowhere. */
void absent_a(void);
int absent_b(int);
int helper(void);
int main(void) {
    absent_a();
    return absent_b(helper());
}
