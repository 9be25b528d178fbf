#!/usr/bin/env bash
# Instruction counts of some work of the core, compared with benches/instructions/baseline.txt: an increase over 1 %
# fails. `instructions.sh PROGRAM --update` rewrites the baseline; commit the baseline with the change that caused it.
#
# Counts only the program's own instructions, for two amounts of work, and takes the difference. The difference
# excludes the program's start and the C library, which selects its code by processor. The rest depends on the source
# and the compiler, which the baseline names. Another compiler is an error: the numbers cannot be compared.
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
    # A name is written once, later uses have only its number; the line after `calls=` is the cost of the callee.
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
    cat "$counted"
    echo "instructions: NOT COMPARED: the baseline is of $(head -n 1 "$baseline"), this is $compiler; run with" \
        "RUSTUP_TOOLCHAIN=VERSION, or rewrite the baseline with make instructions-baseline" >&2
    exit 2
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
