// libisl-dev: isl gmp
#include <isl/map.h>
#include <isl/set.h>
#include <stdio.h>

int main(void) {
    isl_ctx *context = isl_ctx_alloc();
    isl_set *set = isl_set_read_from_str(context, "[n] -> { S[i, j] : 0 <= i < n and i <= j < 2 * i }");
    puts(isl_set_to_str(isl_set_lexmin(isl_set_copy(set))));
    puts(isl_set_to_str(isl_set_lexmax(isl_set_copy(set))));
    isl_map *map = isl_map_read_from_str(context, "{ [i] -> [i + 2] : 0 <= i < 20 }");
    int is_exact;
    puts(isl_map_to_str(isl_map_transitive_closure(map, &is_exact)));
    puts(isl_set_to_str(isl_set_subtract(set, isl_set_read_from_str(context, "[n] -> { S[i, 3] }"))));
    return 0;
}
