# The sample of `run`: what a backend does in its life, with every expression compiled.

check() {
    if [ "$2" != "$3" ]; then
        echo "postgresql: $1: expected \"$3\", got \"$2\""
        exit 1
    fi
    echo "ok: $1"
}

start "$own_provider"
sql -c "CREATE TABLE items AS SELECT i, i % 7 AS seven, (i * 37 % 1000)::numeric / 10 AS price, 'item ' || i AS name FROM generate_series(1, 20000) i; ANALYZE items"

check "the library is in the backend" "$(sql -c "SELECT 1" -c "SELECT count(*) > 0 FROM regexp_matches(pg_read_file('/proc/self/maps'), 'libjittison_orc', 'g')" | tail -1)" t
check "queries are compiled" "$(sql -c "EXPLAIN (ANALYZE, TIMING OFF) SELECT sum(price) FROM items WHERE seven = 3" | grep -c 'JIT:')" 1
query="SELECT seven, count(*), sum(price), min(name), max(i) FROM items WHERE i % 2 = 0 AND name LIKE '%1%' GROUP BY seven ORDER BY seven"
check "answers are those of the interpreter" "$(sql -c "$query")" "$(sql -c 'SET jit = off' -c "$query")"
joined="SELECT count(*), sum(a.i + b.seven), avg(a.price) FROM items a JOIN items b ON a.i = b.i + 1 WHERE a.seven <> b.seven AND b.name >= 'item 5'"
check "joins give the answers of the interpreter" "$(sql -c "$joined")" "$(sql -c 'SET jit = off' -c "$joined")"

# An error leaves compiled code by longjmp. The backend goes on.
errors=$(sql -v ON_ERROR_STOP=0 -c "SELECT 1 / (i - 10000) FROM items" -c "SELECT (name || 'x')::int FROM items" -c "SELECT count(*) FROM items" 2>&1 || true)
check "errors leave compiled code, and the backend goes on" "$(grep -c 'division by zero\|invalid input syntax' <<<"$errors") $(tail -1 <<<"$errors")" "2 20000"
thousand=$(for i in $(seq 1 300); do echo "SELECT 1 / (i - $i) FROM items WHERE i < 400;"; done | sql -v ON_ERROR_STOP=0 2>&1 | grep -c "division by zero")
check "300 errors in one backend" "$thousand" 300
nested="DO \$\$ DECLARE n int := 0; BEGIN FOR k IN 1..100 LOOP BEGIN PERFORM 1 / (i - k) FROM items WHERE i < 200; EXCEPTION WHEN division_by_zero THEN n := n + 1; END; END LOOP; RAISE NOTICE 'caught %', n; END \$\$"
check "errors that a subtransaction catches" "$(sql -c "$nested" 2>&1 | grep -o 'caught [0-9]*')" "caught 100"

check "a cancelled query" "$(sql -v ON_ERROR_STOP=0 -c "SET statement_timeout = 300" -c "SELECT count(*) FROM items a, items b WHERE a.price * b.price < 0" -c "SELECT 5" 2>&1 | tail -1)" 5
(sql -c "SELECT count(*) FROM items a, items b, items c WHERE a.price * b.price < c.price" >"$work/terminated" 2>&1 || true) &
terminated=$!
for _ in $(seq 100); do
    sleep 0.1
    [ "$(sql -c "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%items a, items b, items c%' AND pid <> pg_backend_pid()")" = 1 ] && break
done
wait $terminated
check "a terminated backend" "$(grep -c 'terminating connection due to administrator command' "$work/terminated")" 1

parallel="SELECT count(*), sum(seven * i) FROM items WHERE price > 5"
workers="SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"
check "parallel workers are started" "$(sql -c "$workers" -c "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $parallel" | grep -c 'Workers Launched: 2')" 1
check "parallel workers give the answers of the interpreter" "$(sql -c "$workers" -c "$parallel")" "$(sql -c 'SET jit = off' -c "$parallel")"
check "DISCARD ALL" "$(sql -c "$parallel" -c "DISCARD ALL" -c "$parallel" | uniq | wc -l)" 1
check "clients at the same time" "$(for i in $(seq 8); do (sql -c "$query" | sha256sum) & done; wait)" "$(for i in $(seq 8); do sql -c "SET jit = off" -c "$query" | sha256sum; done)"

# Compiled code is removed after each query, so the size of a backend does not grow. The first queries warm caches.
queries() { for i in $(seq "$1" "$2"); do echo "SELECT sum(price + $i) FROM items WHERE i < 5 AND seven < $((i % 7));"; done; }
resident="SELECT (regexp_match(pg_read_file('/proc/self/status'), 'VmRSS:\s+(\d+)'))[1];"
count=${number:-1000}
output=$({ echo "$compile_fast"; queries 1 200; echo "SELECT 'resident'; $resident"; queries 201 $((200 + count)); echo "SELECT 'resident'; $resident"; } | limit=3600 sql | grep -A1 resident | grep -v -e resident -e --)
before=$(head -1 <<<"$output") after=$(tail -1 <<<"$output")
echo "ok: a backend holds $before kB after 200 queries, and $after kB after $count more"
if [ "$after" -gt $((before + before / 10)) ]; then
    echo "postgresql: the memory of a backend grows"
    exit 1
fi

# The view of what is in memory: the code of an open query, until it is closed.
sql -v provider="$work/jittison" -f "$here/modules.sql"
view="SELECT 'modules', count(*) > 0, coalesce(sum(code), 0) > 0 FROM jittison_modules();"
lived=$(sql <<SQL | grep -a modules | paste -sd' '
$view
BEGIN;
DECLARE open CURSOR FOR SELECT price * 2 + i FROM items WHERE i % 2 = 0;
FETCH 1 FROM open;
SET LOCAL jit = off;
$view
CLOSE open;
COMMIT;
SET jit = off;
$view
SQL
)
check "the view shows compiled code until its query is closed" "${lived#* }" "modules|t|t modules|f|f"

# gdb and perf know compiled code, if the server is told so.
dumped=$(PGOPTIONS='-c jit_debugging_support=on -c jit_profiling_support=on' sql -c "$query")
check "answers with support for gdb and perf" "$dumped" "$(sql -c 'SET jit = off' -c "$query")"
check "perf's dump names the functions of expressions" "$(grep -rlc evalexpr "$work/dumps" | wc -l | sed 's/^[1-9].*/some/')" some

# backend_of TEXT [CONDITION]: the backend whose running query has the text, when the condition holds.
backend_of() {
    local pid
    for _ in $(seq 100); do
        pid=$(sql -c "SELECT min(pid) FROM pg_stat_activity WHERE query LIKE '%$1%' AND state = 'active' AND pid <> pg_backend_pid() ${2:+AND $2}")
        [ -n "$pid" ] && break
        sleep 0.1
    done
    echo "$pid"
}
if command -v gdb >/dev/null; then
    (PGOPTIONS='-c jit_debugging_support=on' sql -c "SELECT count(*) FROM items WHERE i = 7 AND pg_sleep(20) IS NOT NULL" >/dev/null 2>&1 || true) &
    sleeper=$!
    pid=$(backend_of 'i = 7 AND pg_sleep' "wait_event = 'PgSleep'")
    stack=$(timeout 120 gdb -p "$pid" -batch -ex bt 2>/dev/null || true)
    sql -c "SELECT pg_cancel_backend($pid)" >/dev/null
    wait $sleeper
    if grep -q '^#0' <<<"$stack"; then
        check "gdb names the function of an expression that a backend is in" "$(grep -m1 -o evalexpr <<<"$stack")" evalexpr
    else
        echo "skipped: postgresql: gdb may not attach to a backend" | tee -a "${JITTISON_SKIPS:-/dev/null}"
    fi
fi

# A backend whose address space may not grow: its statements or its compiler fail, and nothing else.
mkfifo "$work/statements"
chmod 666 "$work/statements"
(sql -v ON_ERROR_STOP=0 >"$work/short" 2>&1 <"$work/statements" || true) &
short=$!
exec 9>"$work/statements"
echo "SELECT 'first', pg_backend_pid(); SELECT sum(price) FROM items WHERE seven = 1;" >&9
for _ in $(seq 100); do grep -q '^first' "$work/short" && break; sleep 0.1; done
pid=$(sed -n 's/^first|//p' "$work/short")
as_user prlimit --pid "$pid" --as="$(($(awk '{ print $1 }' "/proc/$pid/statm") * $(getconf PAGESIZE) + 4000000))"
# All statements fit in the pipe, so nothing waits for a backend that has ended.
for i in $(seq 40); do
    echo "SELECT $(for j in $(seq "$i"); do printf 'sum(a.price * %d + b.i), ' "$j"; done) 'last' FROM items a JOIN items b USING (i) WHERE a.name LIKE '%$i%';"
done >&9
exec 9>&-
wait $short
check "a backend without memory reports it" "$(grep -m1 -o 'out of memory' "$work/short")" "out of memory"

check "the server lives" "$(sql -c "SELECT count(*) FROM items")" 20000
stop
no_crash
echo "postgresql: $version with jittison, all answers right, memory is flat, no crash"
