// liblmdb-dev: lmdb; pthread
#include <lmdb.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    MDB_env *env;
    MDB_txn *transaction;
    MDB_dbi db;
    MDB_val key, value;
    MDB_cursor *cursor;
    long sum = 0;
    mdb_env_create(&env);
    mdb_env_set_mapsize(env, 10 << 20);
    if (mdb_env_open(env, "strangers.lmdb", MDB_NOSUBDIR, 0644)) return 1;
    mdb_txn_begin(env, NULL, 0, &transaction);
    mdb_dbi_open(transaction, NULL, MDB_INTEGERKEY, &db);
    for (int i = 0; i < 2000; i++) {
        int number = i * 7919 % 2000;
        key = (MDB_val){sizeof number, &number}, value = (MDB_val){sizeof i, &i};
        mdb_put(transaction, db, &key, &value, 0);
    }
    mdb_cursor_open(transaction, db, &cursor);
    while (!mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) sum = sum * 31 + *(int *)value.mv_data;
    mdb_txn_commit(transaction);
    printf("%ld %s\n", sum, mdb_strerror(MDB_NOTFOUND));
    mdb_env_close(env);
    unlink("strangers.lmdb"), unlink("strangers.lmdb-lock");
    return 0;
}
