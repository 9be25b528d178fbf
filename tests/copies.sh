# What tests of interrupted copies share. To be sourced; `fail` is the test's own, files come from the folder from, and
# go to the folder in $to.

# pause FROM TO: in milliseconds, drawn.
pause() {
    local ms=$(($1 + RANDOM % ($2 - $1)))
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

# whole: what has a final name has the whole content.
whole() {
    (cd "$to" && find . -type f ! -name '*.sabul-part' -print0) |
        while IFS= read -r -d '' file; do
            cmp -s "from/$file" "$to/$file" || fail "'$file' has its name and is not whole"
        done
}
