// libluajit-5.1-dev: luajit-5.1; m dl
#include <luajit-2.1/lauxlib.h>
#include <luajit-2.1/lualib.h>
#include <stdio.h>

int main(void) {
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    const char *program = "local bit, ffi = require('bit'), require('ffi')\n"
                          "local s = 0 for i = 1, 3000000 do s = bit.bxor(s * 3 % 65536, i) end print(s, jit.status())\n"
                          "ffi.cdef('int abs(int); typedef struct { int a; double b; } pair;')\n"
                          "local p = ffi.new('pair', 3, 1.5) print(ffi.C.abs(-4), p.a + p.b, pcall(ffi.cdef, 'int ('))\n";
    if (luaL_dostring(lua, program)) puts(lua_tostring(lua, -1));
    lua_close(lua);
    return 0;
}
