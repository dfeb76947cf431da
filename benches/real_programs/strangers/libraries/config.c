// libconfig-dev: config
#include <libconfig.h>
#include <stdio.h>

int main(void) {
    config_t config;
    const char *text;
    int number;
    config_init(&config);
    config_read_string(&config, "a = { b = \"text\"; c = [1, 2, 3]; d = 0x1F; };");
    config_lookup_string(&config, "a.b", &text), config_lookup_int(&config, "a.d", &number);
    printf("%s %d %d\n", text, number, config_setting_get_int_elem(config_lookup(&config, "a.c"), 2));
    config_write(&config, stdout);
    if (!config_read_string(&config, "a = ;")) printf("%d %s\n", config_error_line(&config), config_error_text(&config));
    config_destroy(&config);
    return 0;
}
