# Prints one line per program and tool. A sample has: program, tool, verdict, link us, wall us, user us, peak KB, reason.
# Figures are medians, with minimum and maximum if there are several samples. Variants count as runs of one program.

{
    program = $1
    sub(/\/.*/, "", program)
    key = program "\t" $2
    if (!(key in seen)) { keys[++key_count] = key; seen[key] = 1 }
    if (!((key, $1) in built)) {
        built[key, $1] = 1
        builds[key]++
        verdict = $3 ($3 == "same" ? "" : ": " subject($8))
        if (!((key, verdict) in tally)) verdicts[key, ++verdict_count[key]] = verdict
        tally[key, verdict]++
    }
    if ($3 == "same") {
        runs[key]++
        link[key] = link[key] " " $4
        wall[key] = wall[key] " " $5
        user[key] = user[key] " " $6
        peak[key] = peak[key] " " $7
    } else if ($2 == "jittison") {
        reason = $3 ": " $8
        gsub(/[^ ]*\//, "", reason) # folders
        if (!(reason in where)) reasons[++reason_count] = reason
        if (++times[reason] <= 6) where[reason] = where[reason] (times[reason] > 1 ? ", " : "") $1
    }
}

END {
    print "| program | tool | link, ms | total, ms | user, ms | peak, MB | output | runs |"
    print "|---|---|---:|---:|---:|---:|---|---:|"
    for (k = 1; k <= key_count; k++) {
        key = keys[k]
        split(key, part, "\t")
        sub(/-ld$/, " ld", part[2])
        printf "| %s | %s | %s | %s | %s | %s | %s | %d |\n", part[1], part[2], figure(link[key], 1e3), \
            figure(wall[key], 1e3), figure(user[key], 1e3), figure(peak[key], 1024), output(key), runs[key]
    }
    if (reason_count) print "\nFailures of jittison:\n"
    for (r = 1; r <= reason_count; r++) {
        reason = reasons[r]
        printf "- %s%s: %s\n", where[reason], (times[reason] > 6 ? " and " times[reason] - 6 " more" : ""), reason
    }
}

function output(key,    v, verdict, text) {
    for (v = 1; v <= verdict_count[key]; v++) {
        verdict = verdicts[key, v]
        text = text (v > 1 ? "; " : "") (builds[key] > 1 ? tally[key, verdict] " " : "") verdict
    }
    return text
}

# The subject of an error message, for the table.
function subject(reason) {
    if (match(reason, /^(signal|status) [0-9]+; /)) return substr(reason, 1, RLENGTH) subject(substr(reason, RLENGTH + 1))
    if (reason ~ /TLS|TPOFF|thread-local|thread_local|tls_get_addr/) return "TLS"
    if (reason ~ /IFUNC|ifunc/) return "ifunc"
    if (reason ~ /GOT64|GOTPC64|PLTOFF64|GOTOFF64/) return "large model"
    if (reason ~ /range|reach|R_X86_64_32/) return "out of range"
    if (reason ~ /[Dd]uplicate/) return "duplicate"
    if (reason ~ /\.a: not a/) return "archive"
    if (reason ~ /visibility/) return "visibility"
    if (reason ~ /not found|undefined|nowhere|unresolved|could not find/) return "symbols"
    return substr(reason, 1, 40)
}

function figure(list, unit,    count, values) {
    count = split(list, values, " ")
    if (!count) return "–"
    sort(values, count)
    if (count == 1) return number(values[1] / unit)
    return number((values[int((count + 1) / 2)] + values[int(count / 2) + 1]) / 2 / unit) \
        " (" number(values[1] / unit) "–" number(values[count] / unit) ")"
}

function number(value) { return sprintf(value < 10 ? "%.1f" : "%.0f", value) }

function sort(values, count,    i, j, value) {
    for (i = 2; i <= count; i++) {
        value = values[i] + 0
        for (j = i - 1; j > 0 && values[j] + 0 > value; j--) values[j + 1] = values[j]
        values[j + 1] = value
    }
}
