// liblua5.4-dev: lua5.4; m dl
#include <lua5.4/lauxlib.h>
#include <lua5.4/lualib.h>
#include <stdio.h>

static int twice(lua_State *lua) {
    lua_pushnumber(lua, 2 * luaL_checknumber(lua, 1));
    return 1;
}

int main(void) {
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    lua_register(lua, "twice", twice);
    const char *program = "local t = {} for i = 1, 200 do t[#t + 1] = (i * 7919) % 1000 end table.sort(t)\n"
                          "print(t[1], t[100], t[200], twice(21), string.format('%q', 'a\\nb'))\n"
                          "print(pcall(error, 'text', 0)) print(select(2, pcall(twice, {})))\n"
                          "local co = coroutine.wrap(function(a) for i = 1, 3 do a = a + coroutine.yield(a) end return 'end' end)\n"
                          "print(co(1), co(2), co(3), co(4), math.pi, ('x'):rep(5), #package.path > 0)";
    luaL_loadstring(lua, program);
    lua_pcall(lua, 0, 0, 0) ? puts(lua_tostring(lua, -1)) : 0;
    lua_close(lua);
    return 0;
}
