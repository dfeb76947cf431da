/* Checks for the C tests: the first one that fails prints its place and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <jittison.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* The call succeeds. */
#define OK(call) check_code((call), JITTISON_OK, __FILE__, __LINE__, #call)
/* The call fails with this code. */
#define FAILS(code, call) check_code((call), (code), __FILE__, __LINE__, #call)

static inline void check_code(jittison_error *error, jittison_code code, const char *file, int line, const char *call) {
    if (jittison_error_code(error) != code) {
        jittison_str text = jittison_error_message(error);
        fprintf(stderr, "%s:%d: %s: code %u instead of %u: %.*s\n", file, line, call, jittison_error_code(error), code,
                (int)text.length, text.data);
        exit(1);
    }
    if (error != NULL) {
        CHECK(jittison_error_message(error).length > 0);
    }
    jittison_error_free(error);
}

#define STR(text) jittison_str_of(text)

/* A function of no arguments. */
typedef long (*long_function)(void);

static inline long call_long(jittison_function function) {
    void *address = NULL;
    long_function pointer;
    OK(jittison_function_address(function, &address));
    memcpy(&pointer, &address, sizeof pointer);
    return pointer();
}

/* Reads a file. The caller frees the bytes. */
static inline unsigned char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;
    long length;
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    length = ftell(file);
    CHECK(length >= 0 && fseek(file, 0, SEEK_SET) == 0);
    bytes = malloc((size_t)length + 1);
    CHECK(bytes != NULL && fread(bytes, 1, (size_t)length, file) == (size_t)length);
    fclose(file);
    *size = (size_t)length;
    return bytes;
}

#endif
