/* Defines a function for the other object, and uses data that nothing defines. */
extern int absent_data;
int helper(void) { return absent_data; }
