# Counters and messages of shell tests. To be sourced; the test defines fail(), which prints details of a failure.
passed=0
failed=0
skipped=0

pass() { passed=$((passed + 1)) && echo "ok   $*"; }
skip() { skipped=$((skipped + 1)) && echo "skip $*"; }
