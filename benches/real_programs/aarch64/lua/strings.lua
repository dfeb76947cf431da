-- The string library: patterns, formats, packing, utf8.
local text = "The quick brown fox jumps over the lazy dog; 42 times, 3.14 and 0x2A."
for word, at in text:gmatch "(%a+)()" do io.write(word, "@", at, " ") end
print()
print(text:find("quick"), text:find("o", 15, true), text:find("(%d+)%.(%d+)"), text:match "0x(%x+)", text:find("^fox"))
print(text:gsub("%w+", string.upper, 4))
print(text:gsub("(%w+) (%w+)", "%2 %1", 3))
print(text:gsub("%d", { ["4"] = "four", ["2"] = false }))
print(text:gsub("", "-", 5))
print(("x = 1, y = 22"):gsub("(%w+) = (%w+)", function(k, v) if k == "y" then return v .. "=" .. k end end))
print(("f(a(b)c)d(e)"):match "%b()", ("THE (quick) fox"):find "%((%a+)%)", ("hello world"):match "%f[%w]w%w*")
print(("key=value; other = thing"):match "^(%w+)%s*=%s*(%w+)", ("  trim  "):match "^%s*(.-)%s*$" .. "|")
print(pcall(string.rep, "x", -1), ("ab"):rep(3, ","), ("abc"):reverse(), ("MiXed"):lower(), ("MiXed"):upper(), #("\0\1\2"))
print(("hello"):byte(1, -1), string.char(104, 105), ("hello"):sub(2, -2), ("hello"):sub(-3), ("hello"):sub(4, 2) == "")
print(string.format("%5d|%-5d|%05d|%+d|%x|%X|%#x|%o|%c|%s|%10.3s|%q|%%", 42, 42, 42, 42, 255, 255, 255, 8, 65, "str", "string", "a\nb\0c\"\\"))
print(string.format("%q %q %q %q", 1 / 3, math.mininteger, math.huge, true), string.format("%i %u", 3.0, 7), string.format("%g %G %.3a", 1e20, 1e-10, 1.5))
print(pcall(string.format, "%d", 1.5), pcall(string.format, "%y", 1), pcall(string.format, "%d"))
for _, bad in ipairs { "(", "%", "[a", "(()", "%b", "%f", ")" } do print(bad, pcall(string.find, "a(b", bad)) end
for _, f in ipairs { "<i1", ">i2", "<i4", ">i8", "<I3", ">f", "<d", "z", "s1", "<i16" } do
  local value = (f:find "[zs]") and "text" or (f:find "[fd]") and 1.5 or 100
  local packed = string.pack(f, value)
  print(f, (packed:gsub(".", function(c) return ("%02x"):format(c:byte()) end)), string.unpack(f, packed))
end
print(string.packsize "<!4 i1 i4 i2", string.pack(">I2 I4", 258, 1):byte(1, -1))
print(pcall(string.pack, "i1", 200), pcall(string.unpack, "<i4", "abc"))
print(utf8.char(72, 228, 8364, 128512), utf8.len "häß€😀", utf8.len "\xff", utf8.codepoint("€", 1), utf8.offset("a€b", 3))
for at, code in utf8.codes "aé€😀" do io.write(at, ":", code, " ") end
print(utf8.charpattern, "\u{7FFFFFFF}" == utf8.char(0x7FFFFFFF), pcall(utf8.codepoint, "\xe4"))
for c in ("naïve"):gmatch(utf8.charpattern) do io.write("[", c, "]") end
print()
local long = [==[
first ]] line
second]==]
print(long, #long, "\x41\65\z
      B\u{43}\'\t|", 'single "quotes"')
local pieces = {}
for i = 1, 2000 do pieces[#pieces + 1] = i % 7 == 0 and "seven" or tostring(i) end
local joined = table.concat(pieces, ",")
print(#joined, joined:sub(1, 40), select(2, joined:gsub("seven", "")))
local hash = 5381
for i = 1, #joined do hash = (hash * 33 + joined:byte(i)) & 0xffffffff end
print(hash)
