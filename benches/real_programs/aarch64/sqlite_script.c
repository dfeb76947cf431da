// Runs the statements of a file in a database in memory, and prints rows with the types of their values, and errors.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqlite3.h"

// What a host adds to SQL: a function, an aggregate and a collation.
static void twice(sqlite3_context *context, int count, sqlite3_value **values) {
    (void)count;
    if (sqlite3_value_type(values[0]) == SQLITE_INTEGER) sqlite3_result_int64(context, 2 * sqlite3_value_int64(values[0]));
    else sqlite3_result_error(context, "twice takes an integer", -1);
}

static void product_step(sqlite3_context *context, int count, sqlite3_value **values) {
    (void)count;
    double *product = sqlite3_aggregate_context(context, 2 * sizeof *product);
    if (product[1] == 0) product[0] = product[1] = 1;
    product[0] *= sqlite3_value_double(values[0]);
}

static void product_end(sqlite3_context *context) {
    double *product = sqlite3_aggregate_context(context, 2 * sizeof *product);
    sqlite3_result_double(context, product[0]);
}

static int backwards(void *unused, int a_size, const void *a, int b_size, const void *b) {
    (void)unused;
    int order = memcmp(b, a, (size_t)(a_size < b_size ? a_size : b_size));
    return order ? order : b_size - a_size;
}

static void print_value(sqlite3_value *value) {
    switch (sqlite3_value_type(value)) {
    case SQLITE_NULL: printf("null"); break;
    case SQLITE_INTEGER: printf("%lld", sqlite3_value_int64(value)); break;
    case SQLITE_FLOAT: printf("%.12g:real", sqlite3_value_double(value)); break;
    case SQLITE_TEXT: printf("'%s'", sqlite3_value_text(value)); break;
    default:
        printf("x'");
        for (int i = 0; i < sqlite3_value_bytes(value); i++) printf("%02x", ((const unsigned char *)sqlite3_value_blob(value))[i]);
        printf("'");
    }
}

static void run(sqlite3 *database, const char *sql) {
    while (*sql) {
        sqlite3_stmt *rows;
        const char *rest;
        int state = sqlite3_prepare_v2(database, sql, -1, &rows, &rest);
        if (state == SQLITE_OK && rows) {
            int count = 0;
            while ((state = sqlite3_step(rows)) == SQLITE_ROW) {
                for (int column = 0; column < sqlite3_column_count(rows); column++) {
                    printf("%s", column ? " | " : "");
                    print_value(sqlite3_column_value(rows, column));
                }
                printf("\n");
                count++;
            }
            if (state == SQLITE_DONE) printf("-- %d rows, %d changes\n", count, sqlite3_changes(database));
        }
        if (state != SQLITE_OK && state != SQLITE_DONE) printf("-- error %d: %s\n", sqlite3_extended_errcode(database), sqlite3_errmsg(database));
        int refused = !rows && state != SQLITE_OK;
        sqlite3_finalize(rows);
        const char *end = refused ? strchr(sql, ';') : NULL; // `rest` may be in the middle of a statement that is refused
        sql = end ? end + 1 : rest;
    }
}

int main(int argc, char **argv) {
    static char sql[1 << 20];
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!file) return 8;
    sql[fread(sql, 1, sizeof sql - 1, file)] = 0;
    fclose(file);
    sqlite3 *database;
    if (sqlite3_open(":memory:", &database)) return 7;
    sqlite3_create_function(database, "twice", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, twice, NULL, NULL);
    sqlite3_create_function(database, "product", 1, SQLITE_UTF8, NULL, NULL, product_step, product_end);
    sqlite3_create_collation(database, "backwards", SQLITE_UTF8, NULL, backwards);
    run(database, sql);
    printf("%d\n", sqlite3_total_changes(database));
    return sqlite3_close(database) + 4;
}
