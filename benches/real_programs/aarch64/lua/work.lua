-- Longer computations: a sieve, queens, matrices, n-body, an interpreter, a JSON printer, a priority queue.
local composite, primes = {}, 0
for i = 2, 30000 do if not composite[i] then primes = primes + 1 for j = i * i, 30000, i do composite[j] = true end end end
print("primes", primes)
local function queens(n)
  local count, columns, up, down = 0, {}, {}, {}
  local function place(row)
    if row > n then count = count + 1 return end
    for c = 1, n do
      if not (columns[c] or up[row + c] or down[row - c]) then
        columns[c], up[row + c], down[row - c] = true, true, true
        place(row + 1)
        columns[c], up[row + c], down[row - c] = nil, nil, nil
      end
    end
  end
  place(1)
  return count
end
print("queens", queens(6), queens(7))
local n, a, b, c = 40, {}, {}, {}
for i = 1, n do a[i], b[i], c[i] = {}, {}, {} for j = 1, n do a[i][j], b[i][j] = i / j, (i - j) / (i + j) end end
local trace = 0
for i = 1, n do for j = 1, n do local s = 0 for k = 1, n do s = s + a[i][k] * b[k][j] end c[i][j] = s end trace = trace + c[i][i] end
print(("trace %.12g"):format(trace))
local bodies = { { 0, 0, 0, 0, 0, 0, 39.5 }, { 4.84, -1.16, -0.10, 0.6, 2.8, -0.02, 0.037 }, { 8.34, 4.12, -0.4, -1.01, 1.82, 0.008, 0.011 } }
for _ = 1, 2000 do
  for i = 1, #bodies do
    local p = bodies[i]
    for j = i + 1, #bodies do
      local q = bodies[j]
      local dx, dy, dz = p[1] - q[1], p[2] - q[2], p[3] - q[3]
      local d2 = dx * dx + dy * dy + dz * dz
      local mag = 0.01 / (d2 * math.sqrt(d2))
      p[4], p[5], p[6] = p[4] - dx * q[7] * mag, p[5] - dy * q[7] * mag, p[6] - dz * q[7] * mag
      q[4], q[5], q[6] = q[4] + dx * p[7] * mag, q[5] + dy * p[7] * mag, q[6] + dz * p[7] * mag
    end
  end
  for _, p in ipairs(bodies) do for k = 1, 3 do p[k] = p[k] + 0.01 * p[k + 3] end end
end
print(("bodies %.10f %.10f %.10f"):format(bodies[1][1], bodies[2][2], bodies[3][3]))
local function run(program)
  local cells, at, out, pc, stack = {}, 1, {}, 1, {}
  local jump = {}
  for i = 1, #program do
    local op = program:sub(i, i)
    if op == "[" then stack[#stack + 1] = i elseif op == "]" then local from = table.remove(stack) jump[i], jump[from] = from, i end
  end
  while pc <= #program do
    local op = program:sub(pc, pc)
    if op == "+" then cells[at] = ((cells[at] or 0) + 1) % 256 elseif op == "-" then cells[at] = ((cells[at] or 0) - 1) % 256
    elseif op == ">" then at = at + 1 elseif op == "<" then at = at - 1 elseif op == "." then out[#out + 1] = string.char(cells[at] or 0)
    elseif op == "[" and (cells[at] or 0) == 0 then pc = jump[pc] elseif op == "]" and (cells[at] or 0) ~= 0 then pc = jump[pc] end
    pc = pc + 1
  end
  return table.concat(out)
end
print("bf", run "++++++++[>++++[>++>+++>+++>+<<<<-]>+>+>->>+[<]<-]>>.>---.+++++++..+++.>>.<-.<.+++.------.--------.>>+.")
local function json(v)
  if type(v) ~= "table" then return type(v) == "string" and ("%q"):format(v) or tostring(v) end
  local parts = {}
  if #v > 0 then for _, x in ipairs(v) do parts[#parts + 1] = json(x) end return "[" .. table.concat(parts, ",") .. "]" end
  for k in pairs(v) do parts[#parts + 1] = k end
  table.sort(parts)
  for i, k in ipairs(parts) do parts[i] = ("%q:%s"):format(k, json(v[k])) end
  return "{" .. table.concat(parts, ",") .. "}"
end
print(json { name = "x", list = { 1, 2.5, "three", { deep = { true, false } } }, empty = {}, n = -1e10 })
local heap = {}
local function push(x)
  heap[#heap + 1] = x
  local i = #heap
  while i > 1 and heap[i // 2] > heap[i] do heap[i], heap[i // 2] = heap[i // 2], heap[i] i = i // 2 end
end
local function pop()
  local top = heap[1]
  heap[1] = heap[#heap]
  heap[#heap] = nil
  local i = 1
  while true do
    local least = i
    for child = 2 * i, 2 * i + 1 do if heap[child] and heap[child] < heap[least] then least = child end end
    if least == i then return top end
    heap[i], heap[least] = heap[least], heap[i]
    i = least
  end
end
for i = 1, 2000 do push((i * 7919) % 5003) end
local previous, sorted, checksum = -1, true, 0
for i = 1, 2000 do local x = pop() sorted = sorted and x >= previous previous = x checksum = (checksum * 31 + x) % 1000003 end
print("heap", sorted, checksum)
