#!/usr/bin/env bash
# Release files: for each target a static program, as a tarball and as a Debian package, with their hashes.
#
# packaging/dist.sh OUT TARGET...; needs the targets of rustup and for each of them a C compiler with musl's headers,
# which it names where there is none. CC_<target> and CARGO_TARGET_<TARGET>_LINKER name others.
# PACKAGE_ONLY=1 takes what was built before.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
cargo=${CARGO:-cargo}
target_dir=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

fail() { echo "packaging/dist.sh: $*" >&2; exit 2; }
# debian_name MACHINE: as Debian calls it.
debian_name() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) echo "$1" ;; esac; }

# need_compiler TARGET MACHINE: the C compiler of a musl target, which links for another machine, too.
need_compiler() {
    local cc=CC_${1//-/_} linker=CARGO_TARGET_${1//-/_}_LINKER debian compiler how
    linker=${linker^^}
    [ -z "${!cc:-}" ] || return 0
    if [ "$2" = "$(uname -m)" ]; then
        compiler=musl-gcc
        how="apt-get install musl-tools"
    else
        debian=$(debian_name "$2")
        compiler=$2-linux-musl-gcc
        how="dpkg --add-architecture $debian && apt-get update && apt-get install gcc-$2-linux-gnu musl-dev:$debian"
        [ -n "${!linker:-}" ] || export "$linker=$compiler"
    fi
    "$compiler" --version >/dev/null 2>&1 || fail "no $compiler for $1; on Debian: $how"
    export "$cc=$compiler"
}

[ -n "${PACKAGE_ONLY:-}" ] || for target in "$@"; do
    case $target in x86_64-unknown-linux-musl | aarch64-unknown-linux-musl) need_compiler "$target" "${target%%-*}" ;; esac
done
# Pages and completions of a program for another machine come from one that runs here.
native=${RUN:-}
for target in "$@"; do
    machine=${target%%-*}
    [ -n "${PACKAGE_ONLY:-}" ] ||
        $cargo build ${CARGOFLAGS:-} --profile dist --target "$target" -p sabul-program
    program=$target_dir/$target/dist/sabul
    if [ "$machine" = "$(uname -m)" ]; then native=$program; fi
    run=${native:?"name this machine's target first, or a sabul that runs here as RUN"}

    name=sabul-$version-$machine-linux
    RUN=$run packaging/install.sh "$program" / "$work/$name"
    cp LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md "$work/$name/"
    tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        -czf "$out/$name.tar.gz" "$name"

    if command -v dpkg-deb >/dev/null; then
        arch=$(debian_name "$machine")
        root=$work/deb-$machine
        RUN=$run packaging/install.sh "$program" /usr "$root"
        # Where Debian's zsh looks.
        mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
        install -D -m 644 packaging/sabul.service "$root/lib/systemd/system/sabul.service"
        install -D -m 644 packaging/default "$root/etc/default/sabul"
        install -D -m 644 LICENSE-MIT "$root/usr/share/doc/sabul/copyright"
        gzip -9n "$root"/usr/share/man/man1/*.1
        mkdir "$root/DEBIAN"
        echo /etc/default/sabul >"$root/DEBIAN/conffiles"
        cat >"$root/DEBIAN/control" <<END
Package: sabul
Version: $version
Architecture: $arch
Maintainer: The sabul authors <sabul@localhost>
Section: net
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Recommends: openssh-client
Description: reliable, encrypted bulk data transfer over UDP
 Copies files to and from other machines at the rate that long, fast or lossy
 paths bear, verified and durable, through the user's own ssh or a server of its own.
END
        dpkg-deb --root-owner-group --build "$root" "$out/sabul_${version}_$arch.deb" >/dev/null
    fi
done
(cd "$out" && sha256sum -- * | grep -v SHA256SUMS >SHA256SUMS)
ls -l "$out"
