-- Tables, metatables with every event, inheritance, weak tables, collection, finalisers.
local Point = {}
Point.__index = Point
Point.__name = "Point"
local function point(x, y) return setmetatable({ x = x, y = y }, Point) end
for event, f in pairs {
  __add = function(a, b) return point(a.x + b.x, a.y + b.y) end, __sub = function(a, b) return point(a.x - b.x, a.y - b.y) end,
  __mul = function(a, b) if type(a) == "number" then a, b = b, a end return point(a.x * b, a.y * b) end,
  __div = function(a, b) return point(a.x / b, a.y / b) end, __idiv = function(a, b) return point(a.x // b, a.y // b) end,
  __mod = function(a, b) return point(a.x % b, a.y % b) end, __pow = function(a, b) return point(a.x ^ b, a.y ^ b) end,
  __unm = function(a) return point(-a.x, -a.y) end, __eq = function(a, b) return a.x == b.x and a.y == b.y end,
  __lt = function(a, b) return a.x < b.x end, __le = function(a, b) return a.x <= b.x end, __len = function(a) return a.x + a.y end,
  __call = function(self, k) return self[k] end, __concat = function(a, b) return tostring(a) .. ".." .. tostring(b) end,
  __tostring = function(a) return ("(%g, %g)"):format(a.x, a.y) end, __band = function(a, b) return point(a.x & b, a.y & b) end,
  __bor = function(a, b) return point(a.x | b, a.y | b) end, __bxor = function(a, b) return point(a.x ~ b, a.y ~ b) end,
  __shl = function(a, b) return point(a.x << b, a.y << b) end, __shr = function(a, b) return point(a.x >> b, a.y >> b) end,
  __bnot = function(a) return point(~a.x, ~a.y) end,
} do Point[event] = f end
local p, q = point(6, 8), point(1, 2)
print(p + q, p - q, p * 2, 3 * q, p / 4, p // 4, p % 4, q ^ 3, -p, p == point(6, 8), p < q, p <= q, p > q, #p, p "y", p .. q, p .. "s")
print(p & 4, p | 1, p ~ 3, q << 2, p >> 1, ~q, p ~= q, rawequal(p, point(6, 8)), rawlen { 1, 2 }, rawget(p, "none"))
local log = {}
local proxy = setmetatable({}, {
  __index = function(_, k) log[#log + 1] = "get " .. tostring(k) return k end,
  __newindex = function(t, k, v) log[#log + 1] = "set " .. tostring(k) rawset(t, k, v) end,
  __pairs = function() local i = 0 return function() i = i + 1 if i < 4 then return i, i * i end end end,
  __metatable = "locked",
})
proxy.a = 1
proxy.a = 2
print(proxy.a, proxy.b, proxy[1], getmetatable(proxy), pcall(setmetatable, proxy, {}), table.concat(log, ", "))
for k, v in pairs(proxy) do io.write(k, "=", v, " ") end
print()
local Animal = {}
Animal.__index = Animal
function Animal.new(class, name) return setmetatable({ name = name }, class) end
function Animal:speak() return self.name .. " says " .. self:sound() end
local Dog = setmetatable({}, { __index = Animal })
Dog.__index = Dog
function Dog:sound() return "woof" end
print(Dog:new("Rex"):speak(), pcall(Animal.new(Animal, "Nobody").speak, Animal:new "Nobody"))
local list = {}
for i = 1, 500 do list[i] = (i * 7919) % 1009 end
table.sort(list)
print(list[1], list[250], list[500], #list)
table.sort(list, function(a, b) if a % 10 ~= b % 10 then return a % 10 < b % 10 end return a > b end)
print(table.concat(list, " ", 1, 20))
print(pcall(table.sort, { 3, 1, "x" }))
table.insert(list, 1, "front")
table.insert(list, "back")
print(list[1], list[#list], table.remove(list, 1), table.remove(list), table.remove({}), pcall(table.insert, list, 9999, 0))
print(table.concat(table.move({ 1, 2, 3, 4, 5 }, 2, 5, 1), ","), table.concat(table.move({ 1, 2, 3 }, 1, 3, 3), ","))
local keys = {}
for k, v in pairs { 10, 20, 30, x = 1, y = 2, [2.5] = 3, [true] = 4, [-1] = 5 } do keys[#keys + 1] = tostring(k) .. "=" .. v end
table.sort(keys)
print(table.concat(keys, " "), next({}), type(next), pcall(next, {}, "none"))
print(pcall(function() local t = {} t[nil] = 1 end), pcall(function() local t = {} t[0 / 0] = 1 end))
local weak, finalised = setmetatable({}, { __mode = "k" }), {}
for i = 1, 100 do
  weak[{}] = i
  setmetatable({}, { __gc = function() finalised[#finalised + 1] = i end })
end
local kept = {}
weak[kept] = "kept"
collectgarbage()
collectgarbage()
local left = 0
for _ in pairs(weak) do left = left + 1 end
print(left, weak[kept], #finalised, finalised[1], finalised[100])
print(collectgarbage "isrunning", collectgarbage "incremental", collectgarbage "generational")
local garbage
for i = 1, 20000 do garbage = { i, { i }, tostring(i) } end
print(collectgarbage "incremental", collectgarbage "step", garbage[1], collectgarbage "count" < 20000)
setmetatable({}, { __gc = function() print "finalised at the end" end })
