// libtokyocabinet-dev: tokyocabinet z bz2; m pthread
#include <stdio.h>
#include <tcutil.h>

int main(void) {
    TCMDB *map = tcmdbnew();
    TCTREE *tree = tctreenew();
    char text[20];
    for (int i = 0; i < 2000; i++) sprintf(text, "%d", i * 7919 % 2000), tcmdbput2(map, text, text), tctreeput2(tree, text, text);
    printf("%lu %lu %s\n", (unsigned long)tcmdbrnum(map), (unsigned long)tctreernum(tree), tcmdbget2(map, "1234"));
    int size;
    char *packed = tcdeflate(text, sizeof text, &size), hash[48];
    tcmd5hash("text", 4, hash);
    printf("%d %s\n", packed != NULL, hash);
    return 0;
}
