#!/usr/bin/env bash
# Installs a built sabul below a prefix: the program, its manual pages, completions for three shells, the user service of
# the queue.
#
# packaging/install.sh PROGRAM PREFIX [DESTDIR]; what it writes says the program itself.
set -euo pipefail
program=$1
prefix=$2
to=${3:-}$prefix

# The manual and the completions come from the program, and may be asked of a copy that runs here.
run=${RUN:-$program}
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$run" man --out "$pages"
install -d "$to/bin" "$to/share/man/man1"
install -m 755 "$program" "$to/bin/sabul"
install -m 644 "$pages"/*.1 "$to/share/man/man1/"
for shell in bash zsh fish; do "$run" completion "$shell" >"$pages/$shell"; done
install -D -m 644 "$pages/bash" "$to/share/bash-completion/completions/sabul"
install -D -m 644 "$pages/zsh" "$to/share/zsh/site-functions/_sabul"
install -D -m 644 "$pages/fish" "$to/share/fish/vendor_completions.d/sabul.fish"
sed "s|/usr/bin/|${prefix%/}/bin/|" "$(dirname "$0")/sabul-queue.service" >"$pages/service"
install -D -m 644 "$pages/service" "$to/lib/systemd/user/sabul-queue.service"
