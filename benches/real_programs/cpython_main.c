// The main function of a Python interpreter; the rest is its library.
#include <Python.h>

int main(int count, char **arguments) { return Py_BytesMain(count, arguments); }
