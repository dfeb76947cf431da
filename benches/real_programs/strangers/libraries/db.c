// libdb5.3-dev: db-5.3; pthread
#include <db.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    DB *db;
    DBC *cursor;
    DBT key, value;
    int count = 0;
    db_create(&db, NULL, 0);
    if (db->open(db, NULL, NULL, NULL, DB_BTREE, DB_CREATE, 0)) return 1;
    for (int i = 0; i < 3000; i++) {
        char name[20];
        memset(&key, 0, sizeof key), memset(&value, 0, sizeof value);
        key.data = name, key.size = sprintf(name, "key%d", i * 7919 % 3000);
        value.data = &i, value.size = sizeof i;
        db->put(db, NULL, &key, &value, 0);
    }
    memset(&key, 0, sizeof key), memset(&value, 0, sizeof value);
    db->cursor(db, NULL, &cursor, 0);
    while (!cursor->get(cursor, &key, &value, DB_NEXT)) if (count++ % 1000 == 0) printf("%.*s %d\n", (int)key.size, (char *)key.data, *(int *)value.data);
    cursor->close(cursor);
    db->close(db, 0);
    printf("%d %s\n", count, db_strerror(DB_NOTFOUND));
    return 0;
}
