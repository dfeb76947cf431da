// libgdbm-dev: gdbm
#include <gdbm.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    GDBM_FILE db = gdbm_open("strangers.gdbm", 0, GDBM_NEWDB, 0644, NULL);
    for (int i = 0; i < 1000; i++) gdbm_store(db, (datum){(char *)&i, sizeof i}, (datum){(char *)&i, 1 + i % 4}, GDBM_REPLACE);
    int key = 777, count = 0;
    datum found = gdbm_fetch(db, (datum){(char *)&key, sizeof key});
    for (datum at = gdbm_firstkey(db); at.dptr; at = gdbm_nextkey(db, at)) count++;
    key = 5555;
    gdbm_fetch(db, (datum){(char *)&key, sizeof key});
    printf("%d %d %s\n", found.dsize, count, gdbm_strerror(gdbm_errno));
    gdbm_close(db);
    unlink("strangers.gdbm");
    return 0;
}
