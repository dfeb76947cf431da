-- Numbers, operators, comparisons, conversions, integer division, bits, and the limits of each.
print(_VERSION, math.maxinteger, math.mininteger, math.maxinteger + 1 == math.mininteger)
for _, pair in ipairs { { 7, 2 }, { -7, 2 }, { 7, -2 }, { -7, -2 }, { 7.5, 2 }, { -7.5, 2 }, { 1e300, 1e10 }, { math.mininteger, -1 } } do
  local a, b = pair[1], pair[2]
  print(a, b, a + b, a - b, a * b, a / b, a // b, a % b, a ^ 2, a < b, a <= b, a == b, math.type(a))
end
for _, n in ipairs { 0, 1, -1, 0xff, 0x7fffffffffffffff, math.mininteger, 1 << 62 } do
  print(n, ~n, n & 0xf0f0, n | 0x0f, n ~ 0x55, n << 3, n >> 3, n << 64, n >> -1, string.format("%x", n))
end
print(1 // 0.0, -1 // 0.0, 0.0 / 0.0 ~= 0.0 / 0.0, 5 % math.huge, -5 % math.huge, 5.0 % -math.huge)
print(pcall(function() return 1 // 0 end))
print(pcall(function() return 1 % 0 end))
print(pcall(function() return 1 < "1" end))
print(pcall(function() return {} .. "x" end))
print(pcall(function() return 2.5 | 1 end))
print("10" + 5, "0x10" * 2, "1e1" // 1, 10 .. 20, #"text", -"2", "3" // 1 | 4)
for _, text in ipairs { "12", " 12 ", "0x1p4", "1e", "0x", "1e400", "-0", "9223372036854775808", "inf", "nan", "1_000" } do
  print(text, tonumber(text), math.tointeger(tonumber(text) or 0.5))
end
for base = 2, 36, 7 do print(base, tonumber("101", base), tonumber("zz", base), tonumber("-11", base)) end
for _, x in ipairs { 0.1, 1 / 3, 1e15, 1e16, 1e100, 123456789012345678, 2 ^ 53, -0.0, 3.0, 5e-324 } do
  print(x, string.format("%.14g %.17g %5.2f %e %a", x, x, x, x, x), math.floor(x), math.ceil(x), math.fmod(x, 3))
end
for _, f in ipairs { "sin", "cos", "tan", "asin", "acos", "atan", "exp", "log", "sqrt" } do
  for _, x in ipairs { 0, 0.5, 1, -0.25 } do io.write(f, " ", string.format("%.12g", math[f](x)), " ") end
  print()
end
print(math.log(8, 2), math.log(1000, 10), math.log(5, 3), math.ult(1, -1), math.abs(-3), math.max(2, 9, 4), math.min(2.5, 1))
math.randomseed(42)
local sum = 0
for _ = 1, 1000 do sum = sum + math.random(1, 100) end
print(sum, math.random(0), string.format("%.15f", math.random()))
print(nil == false, not nil, nil and 1, false or "else", 1 and 2, "a" < "b", "a" < "B", "" < "a", "Z" < "a")
print(0x.8p1, 0xA.8, 1e-2, .5, 3., 0xffffffffffffffffff, 1 == 1.0, math.type(2 ^ 31 | 0))
