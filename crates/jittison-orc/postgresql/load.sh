# `run --load [SECONDS]`: 8 clients of pgbench, whose every query is compiled.

start "$own_provider" 'max_connections = 30'
as_user "$programs/pgbench" -i -q -s 2 >/dev/null 2>&1
cat >"$work/mix.sql" <<'SQL'
\set n random(1, 200000)
SELECT count(*), sum(abalance + :n) FROM pgbench_accounts WHERE aid BETWEEN :n AND :n + 100 AND bid + tid_of(:n) > 0;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :n AND abalance > -1000000;
SELECT b.bid, avg(a.abalance) FROM pgbench_accounts a JOIN pgbench_branches b USING (bid) WHERE a.aid < 50 + :n % 7 GROUP BY b.bid;
SQL
sql -c "CREATE FUNCTION tid_of(n int) RETURNS int LANGUAGE plpgsql AS 'BEGIN IF n % 97 = 0 THEN BEGIN PERFORM 1 / (n - n); EXCEPTION WHEN division_by_zero THEN RETURN 1; END; END IF; RETURN n % 5; END'"
chmod 644 "$work/mix.sql"
as_user timeout 7200 "$programs/pgbench" -n -f "$work/mix.sql" -c 8 -j 2 -T "${number:-600}" >"$work/pgbench" 2>&1 || { cat "$work/pgbench"; exit 1; }
grep -E "transactions|latency average|tps" "$work/pgbench"
if grep -qE "aborted|ERROR" "$work/pgbench" || ! grep -q "number of failed transactions: 0" "$work/pgbench"; then
    cat "$work/pgbench"
    exit 1
fi
stop
echo "postgresql: 8 clients for ${number:-600} s, no error, no crash"
