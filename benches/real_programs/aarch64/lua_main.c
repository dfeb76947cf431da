// Runs each script of the command line in a new state, and prints the error of one that fails.
#include <stdio.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

static int with_traceback(lua_State *lua) {
    luaL_traceback(lua, lua, lua_tostring(lua, 1), 1);
    return 1;
}

// What a host offers to its scripts: a function with an upvalue, and one that continues after a yield.
static int counter(lua_State *lua) {
    lua_Integer count = lua_tointeger(lua, lua_upvalueindex(1)) + 1;
    lua_pushinteger(lua, count);
    lua_copy(lua, -1, lua_upvalueindex(1));
    return 1;
}

static int after_yield(lua_State *lua, int status, lua_KContext context) {
    lua_pushfstring(lua, "%d after %d", status == LUA_YIELD, (int)context);
    return 1;
}

static int yields(lua_State *lua) { return lua_yieldk(lua, lua_gettop(lua), 7, after_yield); }

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        lua_State *lua = luaL_newstate();
        luaL_openlibs(lua);
        lua_pushinteger(lua, 40);
        lua_pushcclosure(lua, counter, 1);
        lua_setglobal(lua, "counter");
        lua_register(lua, "yields", yields);
        lua_pushcfunction(lua, with_traceback);
        if (luaL_loadfile(lua, argv[i]) || lua_pcall(lua, 0, 0, 1)) {
            printf("failed: %s\n", lua_tostring(lua, -1));
            failed++;
        }
        lua_close(lua);
    }
    printf("%d scripts, %d failed\n", argc - 1, failed);
    return failed + 3;
}
