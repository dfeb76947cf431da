-- Files, dates, the environment, modules, debug information.
local name = os.tmpname()
local file = assert(io.open(name, "w"))
print(io.type(file), io.type(42), file:write("line 1\n", 2, " ", 3.5, "\n0x10 -7 1e2 rest\nlast") == file, file:seek "cur", file:seek("set", 3), file:write "E" == file)
print(file:setvbuf("full", 1024), file:flush() == file, file:close(), io.type(file), pcall(file.read, file))
for line in io.lines(name) do io.write("[", line, "]") end
print()
for a, b in io.lines(name, 1, "l") do io.write(a, "|", tostring(b), ";") end
print()
file = io.open(name)
print(file:read("l", "n", "n", "l", "n", "n", "n", "a", "a", "l"))
print(file:seek "end", file:seek("set"), file:read(0), file:read(4), file:read "L", file:read(1000))
file:close()
file = io.open(name, "a+b")
file:write "appended"
file:seek "set"
print(#file:read "a", select("#", file:read "a"))
file:close()
print(io.open("/nonexistent/file"), pcall(io.lines, "/nonexistent"), pcall(io.open, name, "wrong mode"))
print(os.rename(name, name .. ".moved"), os.remove(name .. ".moved"), os.remove "/nonexistent/file")
local pipe = io.popen "echo from a shell; exit 3"
print(pipe:read "a", pipe:close())
print(os.execute "exit 4", os.execute "kill -9 $$", os.execute() ~= nil)
print(os.time { year = 2024, month = 2, day = 30, hour = 12 }, os.date("!%Y-%m-%d %H:%M:%S %j %a %B", 86400 * 365), os.date("!*t", 0).wday)
print(os.difftime(10, 4), os.getenv "NOT_SET_ANYWHERE", type(os.clock()), pcall(os.date, "%Ez", 0), os.setlocale "C", os.setlocale("none"))
package.preload.mine = function(...) print("loading", ...) return { value = 9 } end
print(require "mine".value, require "mine" == package.loaded.mine, pcall(require, "no.such.module") == false, package.config:sub(1, 1))
local lines, calls = 0, {}
debug.sethook(function(event) if event == "line" then lines = lines + 1 else calls[#calls + 1] = event end end, "crl")
local function traced(a, ...) local b = a return b end
traced(1)
traced(2, 3)
debug.sethook()
print(lines, table.concat(calls, " "))
local info = debug.getinfo(traced, "SlunrtL")
print(info.what, info.nparams, info.isvararg, info.linedefined, info.nups, info.short_src:gsub("^.*/", ""))
print(debug.getlocal(traced, 1), debug.getlocal(traced, 2), debug.gethook())
local up = 5
local function has_upvalue() up = up + 1 return up end
print(debug.getupvalue(has_upvalue, 1), debug.setupvalue(has_upvalue, 1, 50), has_upvalue(), type(debug.upvalueid(has_upvalue, 1)))
print(debug.getmetatable "".__index == string, type(debug.getregistry()), debug.getuservalue(io.stdout, 1))
print(tostring(print):match "^builtin" or tostring(print):match "^function", tostring({}):match "^table: 0x%x+$" ~= nil)
io.stdout:write("written ", 1, "\n")
print(type(warn), warn "@off", rawequal(_G, _ENV))
