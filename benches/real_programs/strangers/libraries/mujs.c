// libmujs-dev: mujs; m
#include <mujs.h>
#include <stdio.h>

static void print(js_State *js) {
    puts(js_tostring(js, 1));
    js_pushundefined(js);
}

int main(void) {
    js_State *js = js_newstate(NULL, NULL, JS_STRICT);
    js_newcfunction(js, print, "print", 1);
    js_setglobal(js, "print");
    js_dostring(js, "print(JSON.stringify({a: [3, 1, 2].sort(), b: 'aXbX'.replace(/x/gi, '-'), c: 1 / 3}));"
                    "try { null.x } catch (e) { print(e) } print([1, 2, 3].map(function (v) { return v * v }))");
    js_freestate(js);
    return 0;
}
