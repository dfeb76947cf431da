/* Defines what the other object needs, and refers to more that is nowhere. */
extern int absent_data;
int helper(void) { return absent_data; }
