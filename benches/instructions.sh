#!/usr/bin/env bash
# How many instructions some work of the core takes, against benches/instructions/baseline.txt: more than 1 % more
# fails. `instructions.sh PROGRAM --update` writes the baseline anew; commit it with the change that made it.
#
# What is counted are the program's own instructions, for two amounts of work, and their difference is taken: so
# neither the start counts, nor the C library, which chooses its code by the processor. What is left follows
# from the source and the compiler, which the baseline names; another compiler's numbers are not compared.
set -euo pipefail
program=${1:?the built program}
baseline=$(dirname "$0")/instructions/baseline.txt
# WORK LESS MORE
works="world 1 2
channel 100 300
controllers 1 2
wire 2000 6000
router-jetmax 10000 20000
router-rcp 10000 20000
router-piqi-rcp 10000 20000
router-xcp 10000 20000
router-emkc 10000 20000
router-maxnet 10000 20000"
limit_percent=1

command -v valgrind >/dev/null || {
    echo "instructions: no valgrind here; install it, for example: apt-get install valgrind" >&2
    exit 2
}
compiler="$("${RUSTC:-rustc}" -vV | sed -n 's/^release: /rustc /p') $(uname -m)"
out=$(mktemp -d "${TMPDIR:-/tmp}/sabul-instructions.XXXXXX")
trap 'rm -rf "$out"' EXIT

# own WORK AMOUNT: instructions in the program's own code.
own() {
    valgrind --tool=callgrind --callgrind-out-file="$out/$1.$2" "$program" "$1" "$2" \
        >"$out/log" 2>&1 || { cat "$out/log" >&2; return 1; }
    # A name stands once, later uses have its number only; the line after `calls=` is what was called.
    awk -v program="$(basename "$program")" '
        /^ob=/ {
            match($0, /\([0-9]+\)/); id = substr($0, RSTART, RLENGTH)
            if (match($0, /\/[^\/]*$/)) ours[id] = substr($0, RSTART + 1) == program
            counts = ours[id]
        }
        /^cob=/ && match($0, /\/[^\/]*$/) {
            name = substr($0, RSTART + 1)
            match($0, /\([0-9]+\)/); ours[substr($0, RSTART, RLENGTH)] = name == program
        }
        /^calls=/ { getline; next }
        /^[0-9+*-]/ && counts { sum += $2 }
        END { printf "%.0f\n", sum }' "$out/$1.$2"
}

counted=$out/counted
echo "$compiler" >"$counted"
while read -r work less more; do
    first=$(own "$work" "$less") && second=$(own "$work" "$more")
    echo "$work $((second - first))" >>"$counted"
done <<<"$works"

if [ "${2:-}" = --update ]; then
    cp "$counted" "$baseline"
    cat "$baseline"
    exit
fi
if [ "$(head -n 1 "$baseline")" != "$compiler" ]; then
    echo "instructions: NOT COMPARED: the baseline is of $(head -n 1 "$baseline"), this is $compiler"
    cat "$counted"
    exit
fi
awk -v limit="$limit_percent" '
    FNR == 1 { next }
    NR == FNR { before[$1] = $2; next }
    !($1 in before) { printf "%-16s %12.0f: not in the baseline; run make instructions-baseline\n", $1, $2; bad = 1; next }
    {
        change = 100 * ($2 / before[$1] - 1)
        verdict = change > limit ? "TOO MANY" : change < -limit ? "fewer: make instructions-baseline keeps it" : "ok"
        printf "%-16s %12.0f instructions, %+.3f %%: %s\n", $1, $2, change, verdict
        bad = bad || change > limit
    }
    END { exit bad }' "$baseline" "$counted" || {
    echo "instructions: more than $limit_percent % more than benches/instructions/baseline.txt; find out why, or" \
        "run make instructions-baseline and commit it with the reason" >&2
    exit 1
}
