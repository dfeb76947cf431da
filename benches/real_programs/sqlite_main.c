// A shop's database in memory: it is filled, joined, ranked and printed. The output is the same on every machine.
#include <stdio.h>
#include <stdlib.h>

#include "sqlite3.h"

static const char *const QUERIES[] = {
    "select sqlite_version()",
    "select count(*), sum(amount), min(day), max(day) from sales",
    // A join, grouped and filtered.
    "select c.town, p.kind, count(*) n, sum(s.amount * p.price) total from sales s join customers c on c.id = s.customer"
    " join products p on p.id = s.product group by c.town, p.kind having n > 600 order by total desc limit 12",
    // Window functions over a grouped join.
    "select day, total, sum(total) over (order by day rows between 6 preceding and current row) week,"
    " rank() over (order by total desc) place from (select day, sum(amount * price) total from sales s"
    " join products p on p.id = s.product group by day) order by place limit 10",
    // A recursive query, text and floating point.
    "with recursive f(n, a, b) as (select 1, 0, 1 union all select n + 1, b, a + b from f where n < 60)"
    " select n, b, printf('%.12f', 1.0 * b / max(a, 1)) from f where n % 12 = 0",
    "select group_concat(name, ', ') from (select upper(substr(name, 1, 3)) || length(name) name from customers"
    " where name like '%7%' order by name limit 20)",
    "select town, count(distinct product) from sales join customers on customers.id = customer group by town",
    "explain query plan select * from sales join customers on customers.id = customer where product = 3",
};

static const char FILL[] =
    "create table customers(id integer primary key, name text, town text);"
    "create table products(id integer primary key, kind text, price integer);"
    "create table sales(id integer primary key, customer integer, product integer, day integer, amount integer);"
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 500)"
    " insert into customers select i, 'customer ' || (i * 7919 % 1009), 'town ' || (i * 31 % 9) from n;"
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 60)"
    " insert into products select i, 'kind ' || (i % 7), 100 + i * 37 % 250 from n;";

static void check(sqlite3 *database, int result) {
    if (result == SQLITE_OK || result == SQLITE_DONE || result == SQLITE_ROW) return;
    fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(database));
    exit(1);
}

static void insert_sales(sqlite3 *database, int count) {
    sqlite3_stmt *insert;
    check(database, sqlite3_exec(database, "begin", 0, 0, 0));
    check(database, sqlite3_prepare_v2(database, "insert into sales values (?, ?, ?, ?, ?)", -1, &insert, 0));
    unsigned random = 1;
    for (int id = 1; id <= count; id++) {
        sqlite3_bind_int(insert, 1, id);
        const int limits[] = {500, 60, 365, 20};
        for (int column = 0; column < 4; column++) {
            random = random * 1664525 + 1013904223;
            sqlite3_bind_int(insert, column + 2, 1 + (int)((random >> 8) % (unsigned)limits[column]));
        }
        check(database, sqlite3_step(insert));
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    check(database, sqlite3_exec(database, "commit; create index by_product on sales(product, day)", 0, 0, 0));
}

static void print(sqlite3 *database, const char *query) {
    sqlite3_stmt *rows;
    check(database, sqlite3_prepare_v2(database, query, -1, &rows, 0));
    int state;
    while ((state = sqlite3_step(rows)) == SQLITE_ROW) {
        for (int column = 0; column < sqlite3_column_count(rows); column++)
            printf("%s%s", column ? " | " : "", (const char *)sqlite3_column_text(rows, column));
        printf("\n");
    }
    check(database, state);
    sqlite3_finalize(rows);
    printf("\n");
}

int main(void) {
    sqlite3 *database;
    check(0, sqlite3_open(":memory:", &database));
    check(database, sqlite3_exec(database, FILL, 0, 0, 0));
    insert_sales(database, 40000);
    for (size_t query = 0; query < sizeof QUERIES / sizeof *QUERIES; query++) print(database, QUERIES[query]);
    return sqlite3_close(database);
}
