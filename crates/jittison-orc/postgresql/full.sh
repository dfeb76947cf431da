# `run --full`: PostgreSQL's regression tests with both linkers, parallel query on and off. Exactly the same tests must differ.
# TESTS names some tests, in order, instead of all; PARALLEL is `off` or `on` instead of both.

package=$(dpkg-query -W -f '${Version}' "postgresql-$version")
source=${PG_SOURCE:-$work/source}
if [ ! -e "$source/src/test/regress/parallel_schedule" ]; then
    "$here/../fetch-source" "$source" "postgresql-$version=$package" '*/src/test/regress/*'
fi
tests=$source/src/test/regress
# The headers must be those of this very server: a test in C uses functions that came with an update.
headers=${PG_HEADERS:-/usr/include/postgresql/$version/server}
is_of_server() { grep -qs "define PG_VERSION_STR \"PostgreSQL $("$programs/postgres" --version | cut -d' ' -f3) " "$headers"/pg_config*.h; }
if ! is_of_server; then
    mkdir -p "$work/headers"
    (cd "$work/headers" && apt-get -qq download "postgresql-server-dev-$version=$package" && dpkg -x ./*.deb .)
    headers=$work/headers/usr/include/postgresql/$version/server
fi
pg_regress=$(find "$libraries/pgxs" -name pg_regress -type f | head -1)
if [ -z "$pg_regress" ] || ! is_of_server; then
    echo "postgresql: --full needs pg_regress and the headers of this server (Debian: \`apt-get install postgresql-server-dev-all\`)"
    exit 1
fi
mkdir "$work/regress"
# Functions of the tests that are written in C.
cc -O2 -w -shared -fPIC -I"$headers" -I"$tests" -o "$work/regress/regress.so" "$tests/regress.c"
cp -r "$tests/sql" "$tests/expected" "$tests/data" "$tests/parallel_schedule" "$work/regress/"
cp "$tests/resultmap" "$work/regress/" 2>/dev/null || true
[ "$(id -u)" = 0 ] && chown -R "$user" "$work/regress"

# differing NAME PROVIDER [SETTING...]: runs all tests, and writes the names of those that differ.
differing() {
    local name=$1 provider=$2
    shift 2
    start "$provider" "$@"
    local output=$work/$name
    mkdir "$output"
    [ "$(id -u)" = 0 ] && chown "$user" "$output"
    as_user timeout 5400 "$pg_regress" --inputdir="$work/regress" --outputdir="$output" --dlpath="$work/regress" \
        --bindir="$programs" --dbname=regression --host="$PGHOST" --port="$PGPORT" --user="$user" \
        --max-connections=4 $(if [ -n "${TESTS:-}" ]; then echo "$TESTS"; else echo "--schedule=$work/regress/parallel_schedule"; fi) \
        >"$output/log" 2>&1 || true
    if ! grep -qE "tests (passed|failed)|of [0-9]+ tests" "$output/log"; then
        tail -20 "$output/log"
        exit 1
    fi
    grep -E "(\.\.\. +FAILED|^not ok)" "$output/log" | sed -E 's/^not ok +[0-9]+ +[-+] +//; s/^ *(test )?//' | awk '{ print $1 }' | sort >"$work/$name.differing" || true
    echo "$(grep -cE '\.\.\. +ok|^ok ' "$output/log") pass, $(wc -l <"$work/$name.differing") differ: $(paste -sd ' ' "$work/$name.differing")"
    stop
    no_crash
}

parallel_off=('max_parallel_workers_per_gather = 0')
parallel_on=('max_parallel_workers_per_gather = 2')
[ -z "${FORCED:-}" ] || parallel_on+=('parallel_setup_cost = 0' 'parallel_tuple_cost = 0' 'min_parallel_table_scan_size = 0')
printf '%-14s %-10s %s\n' 'parallel query' linker outcome
failed=0
for parallel in ${PARALLEL:-off on}; do
    if [ $parallel = on ]; then settings=("${parallel_on[@]}"); else settings=("${parallel_off[@]}"); fi
    for linker in jittison llvmjit; do
        if [ $linker = jittison ]; then provider=$own_provider; else provider=llvmjit; fi
        printf '%-14s %-10s ' $parallel $linker
        differing "$linker-$parallel" "$provider" "${settings[@]}"
    done
    if ! diff "$work/llvmjit-$parallel.differing" "$work/jittison-$parallel.differing"; then
        failed=1
        for name in $(comm -13 "$work/llvmjit-$parallel.differing" "$work/jittison-$parallel.differing"); do
            diff "$work/llvmjit-$parallel/results/$name.out" "$work/jittison-$parallel/results/$name.out" | head -40 || true
        done
    fi
done
[ $failed = 0 ] || exit 1
echo "postgresql: with jittison exactly those tests differ that differ with llvmjit alone"
