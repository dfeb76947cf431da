-- Loops, goto, closures, varargs, multiple results, attributes, tail calls, scopes.
local function sum(...)
  local total = 0
  for i = 1, select("#", ...) do total = total + (select(i, ...) or 0) end
  return total, select("#", ...), ...
end
print(sum(), (sum(1, 2, 3)), sum(1, nil, 3, nil))
print(table.unpack({ 1, 2, nil, 4 }, 1, 4), table.pack(1, nil, nil).n)
for i = 10, 1, -3 do io.write(i, " ") end
for x = 0, 1, 0.25 do io.write(x, " ") end
for i = math.maxinteger - 1, math.maxinteger do io.write(i, " ") end
print(pcall(function() for _ = 1, 2, 0 do end end))
for i = 1, 3 do
  for j = 1, 3 do
    if (i + j) % 2 == 0 then goto continue end
    io.write(i, j, " ")
    ::continue::
  end
end
print()
do
  local i = 1
  ::again::
  if i <= 5 then io.write(i * i, " ") i = i + 1 goto again end
  repeat local done = i > 8 i = i + 1 until done
  while true do if i > 12 then break end i = i + 2 end
  print(i)
end
local functions = {}
for i = 1, 4 do
  local hidden = i * 10
  functions[i] = function(add) hidden = hidden + add return hidden, i end
end
for i, f in ipairs(functions) do print(f(1), f(2), i) end
local function loop(n, acc) if n == 0 then return acc end return loop(n - 1, acc + n) end
print(loop(200000, 0))
local function ackermann(m, n)
  if m == 0 then return n + 1 elseif n == 0 then return ackermann(m - 1, 1) end
  return ackermann(m - 1, ackermann(m, n - 1))
end
print(ackermann(2, 6))
do
  local order = {}
  local function closer(name) return setmetatable({}, { __close = function(_, e) order[#order + 1] = name .. ":" .. tostring(e) end }) end
  local ok, message = pcall(function()
    local a <close> = closer "a"
    local b <close> = closer "b"
    local fixed <const> = 5
    for k in (function() return nil end), nil, nil, closer "loop" do print(k) end
    error("boom" .. fixed, 0)
  end)
  print(ok, message, table.concat(order, " "))
end
print(load("local x <const> = 1; x = 2"))
print(load("goto nowhere"))
print(load("break"))
print(load("for i = 1 do end"))
print(load("return ...", "chunk", "t", {})(1, 2))
print(pcall(load, nil))
local parts, n = { "return ", "6 ", "* 7" }, 0
print(load(function() n = n + 1 return parts[n] end)())
local dumped = string.dump(function(a, b) local t = { a, b, k = a .. b } return t.k, #t end, true)
print(#dumped > 50, load(dumped, "binary", "b")("x", "y"), load(dumped, "binary", "t"))
local env = { print = print }
local chunk = load("y = 5; print(y, _ENV.y); return _ENV", "sandbox", "t", env)
print(chunk() == env, env.y, y)
print(counter(), counter(), counter())
local deep = function(f, n) if n == 0 then return "bottom" end return (f(f, n - 1)) end
print(deep(deep, 5000))
print(select(2, pcall(function() local function endless() return 1 + endless() end return endless() end)):match("stack overflow"))
print(select(-1, "a", "b", "c"), select("#"), pcall(select, 0))
