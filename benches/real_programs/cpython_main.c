// The whole of a Python interpreter but its library.
#include <Python.h>

int main(int count, char **arguments) { return Py_BytesMain(count, arguments); }
