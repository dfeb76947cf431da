-- Coroutines, errors that pass through them, and yields across C functions.
local function generate(n) return coroutine.wrap(function() for i = 1, n do coroutine.yield(i, i * i) end return "end" end) end
local g = generate(3)
print(g(), g(), g(), g(), pcall(g))
local function permutations(list, n)
  n = n or #list
  if n <= 1 then coroutine.yield(table.concat(list)) return end
  for i = 1, n do
    list[n], list[i] = list[i], list[n]
    permutations(list, n - 1)
    list[n], list[i] = list[i], list[n]
  end
end
for text in coroutine.wrap(function() permutations { "a", "b", "c", "d" } end) do io.write(text, " ") end
print()
local co = coroutine.create(function(a, b)
  local c = coroutine.yield(a + b)
  local d, e = coroutine.yield(c * 2)
  error { code = d + e }
end)
print(coroutine.status(co), coroutine.resume(co, 1, 2), coroutine.resume(co, 10))
local ok, object = coroutine.resume(co, 3, 4)
print(ok, type(object), object.code, coroutine.status(co), coroutine.resume(co))
print(select('#', coroutine.close(co)), coroutine.status(co))
local across = coroutine.wrap(function()
  local caught = { pcall(function() local got = coroutine.yield "in pcall" error("after " .. got, 0) end) }
  coroutine.yield(caught[1], caught[2])
  local t = setmetatable({}, { __index = function(_, k) return coroutine.yield("index " .. k) end, __lt = function() return coroutine.yield "lt" end })
  coroutine.yield(t.field, t < t)
  for v in function() return coroutine.yield "iterator" end do return "got " .. tostring(v) end
end)
print(across(), across "resume", across(), across "value", across(true), across(), across "last")
local c_function = coroutine.wrap(function() return yields(1, 2) end)
print(c_function(), c_function())
print(coroutine.isyieldable(), type(coroutine.running()), select(2, coroutine.running()))
print(pcall(coroutine.yield), select(2, coroutine.resume(coroutine.create(function() return coroutine.isyieldable() end))))
local closed = coroutine.create(function() local x <close> = setmetatable({}, { __close = function() print "closed" end }) coroutine.yield() end)
coroutine.resume(closed)
print(coroutine.close(closed), coroutine.status(closed))
local function where() return debug.traceback("trace", 1):gsub("\n.*%[C%].*", "") end
print((where():gsub("[^\n]*/", "")))
print(select(2, xpcall(function() local x = nil; return x.field end, function(m) return "handled: " .. m:gsub("^.*/", "") end)))
print(select(2, xpcall(error, tostring, setmetatable({}, { __tostring = function() return "object" end }))))
for level = 0, 2 do print(pcall(error, "message", level)) end
print(pcall(error), pcall(error, nil), pcall(assert, false), pcall(assert, nil, "reason"), pcall(assert, 1, 2))
print(select(2, pcall(function() local t = {} t.x.y = 1 end)):gsub("^.*/", ""))
print(select(2, pcall(function() undefined_function() end)):gsub("^.*/", ""))
print(select(2, pcall(string.rep)), select(2, pcall(setmetatable, 1, {})))
local channel, produced = {}, 0
local producer = coroutine.create(function() for i = 1, 500 do channel[#channel + 1] = i produced = produced + i coroutine.yield() end end)
local consumer = coroutine.create(function() local total = 0 while true do total = total + (table.remove(channel, 1) or 0) coroutine.yield(total) end end)
local total
while coroutine.resume(producer) do _, total = coroutine.resume(consumer) end
print(produced, total)
local many = {}
for i = 1, 2000 do many[i] = coroutine.wrap(function(x) while true do x = coroutine.yield(x + i) end end) end
local all = 0
for round = 1, 3 do for i = 1, #many do all = all + many[i](round) end end
print(all)
