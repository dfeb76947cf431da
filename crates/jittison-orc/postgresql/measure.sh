# `run --measure [N]`: times and memory with both linkers, as they are.

count=${number:-100000}
query="SELECT seven, count(*), sum(price), avg(price + i), min(name) FROM items WHERE i % 3 <> 1 AND name LIKE '%1%' GROUP BY seven ORDER BY seven"
small="SELECT sum(price + %d) FROM items WHERE i < 5 AND seven < %d;\n"
resident="SELECT 'resident ' || (regexp_match(pg_read_file('/proc/self/status'), 'VmRSS:\s+(\d+)'))[1];"
for linker in llvmjit jittison; do
    if [ $linker = jittison ]; then start "$own_provider"; else start llvmjit; fi
    sql -c "CREATE TABLE items AS SELECT i, i % 7 AS seven, (i * 37 % 1000)::numeric / 10 AS price, 'item ' || i AS name FROM generate_series(1, 20000) i; ANALYZE items"
    # The first query of a backend loads libraries and types. The medians are of 20 more.
    for _ in $(seq 21); do echo "EXPLAIN (ANALYZE, FORMAT JSON) $query;"; done | sql | tr -d ' \n' | sed 's/\]\[/]\n[/g' | tail -n +2 >"$work/$linker.json"
    median() { grep -o "\"$1\":[0-9.]*" "$work/$linker.json" | cut -d: -f2 | sort -n | sed -n '10p'; }
    timing() { grep -o "\"$1\":{*[^,}]*" "$work/$linker.json" | grep -o '[0-9.]*$' | sort -n | sed -n '10p'; }
    echo "$linker: a query in ms, medians of 20: execution $(median ExecutionTime); JIT: generation $(timing Generation), inlining $(timing Inlining), optimization $(timing Optimization), emission $(timing Emission), total $(timing Total)"
    begun=$SECONDS
    output=$({ echo "$compile_fast"; seq 1 200 | awk -v f="$small" '{ printf f, $1, $1 % 7 }'; echo "$resident"; seq 1 "$count" | awk -v f="$small" '{ printf f, $1, $1 % 7 }'; echo "$resident"; } | limit=36000 sql | grep '^resident' | cut -d' ' -f2 | paste -sd' ')
    echo "$linker: a backend holds ${output% *} kB after 200 queries, and ${output#* } kB after $count more, which take $((SECONDS - begun)) s"
    stop
done
