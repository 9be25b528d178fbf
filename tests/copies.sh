# Shared functions of tests of interrupted copies. To be sourced; the test defines `fail`. Files come from the folder
# from, and go to the folder in $to.

# pause FROM TO: sleeps a random time in milliseconds.
pause() {
    local ms=$(($1 + RANDOM % ($2 - $1)))
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

# whole: checks that every file under a final name is complete.
whole() {
    (cd "$to" && find . -type f ! -name '*.sabul-part' -print0) |
        while IFS= read -r -d '' file; do
            cmp -s "from/$file" "$to/$file" || fail "'$file' has its name and is not whole"
        done
}
