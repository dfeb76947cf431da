/* Calls two functions that nothing defines, and one of the other object. */
void absent_a(void);
int absent_b(int);
int helper(void);
int main(void) {
    absent_a();
    return absent_b(helper());
}
