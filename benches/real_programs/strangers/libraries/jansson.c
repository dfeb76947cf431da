// libjansson-dev: jansson
#include <jansson.h>

int main(void) {
    json_error_t error;
    json_t *json = json_loads("{\"b\": [1, 2.5, true, null], \"a\": {\"x\": \"\\u00e9\"}}", 0, &error);
    json_object_set_new(json, "packed", json_pack("{s:i, s:[s,b]}", "n", 7, "l", "text", 1));
    puts(json_dumps(json, JSON_SORT_KEYS | JSON_INDENT(2)));
    if (!json_loads("{\"a\": [1,, 2]}", 0, &error)) printf("%d:%d %s\n", error.line, error.column, error.text);
    return 0;
}
