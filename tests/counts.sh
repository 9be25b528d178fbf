# What tests in shell count and say. To be sourced; who sources it says in fail() what is shown of a failure.
passed=0
failed=0
skipped=0

pass() { passed=$((passed + 1)) && echo "ok   $*"; }
skip() { skipped=$((skipped + 1)) && echo "skip $*"; }
