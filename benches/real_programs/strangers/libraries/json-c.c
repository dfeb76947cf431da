// libjson-c-dev: json-c; m
#include <json-c/json.h>
#include <stdio.h>

int main(void) {
    struct json_object *json = json_tokener_parse("{\"b\": [1, 2.5, true, null], \"a\": {\"x\": \"\\u00e9\"}}"), *found;
    puts(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PRETTY));
    json_pointer_get(json, "/b/1", &found);
    printf("%f\n", json_object_get_double(found));
    enum json_tokener_error error;
    json_tokener_parse_verbose("{\"a\": [1,, 2]}", &error);
    puts(json_tokener_error_desc(error));
    return 0;
}
