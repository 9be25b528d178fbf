#!/usr/bin/env bash
# A container image as an archive in OCI layout, which podman and skopeo read as it is; made without a daemon and without
# a registry.
#
# packaging/image.sh OUT PROGRAM [BASE]; PROGRAM is a sabul, static where there is no BASE. BASE is a Debian root as
# debootstrap makes it; with it the image is `sabul-lab`, a root to run experiments in, otherwise `sabul`, which
# serves /srv. ARCH names another machine than this one, as OCI does: arm64.
set -euo pipefail
out=$(realpath -m "${1:?name a folder for the archive}")
program=$(realpath "${2:?name a sabul program}")
base=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.."
arch=${ARCH:-$(dpkg --print-architecture 2>/dev/null || echo amd64)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work"/{layout/blobs/sha256,program}
layers= ids=

# blob FILE: keeps it under its hash, which it prints.
blob() {
    local hash
    hash=$(sha256sum "$1" | cut -d ' ' -f 1)
    mv "$1" "$work/layout/blobs/sha256/$hash"
    echo "$hash"
}
descriptor() { # TYPE HASH
    printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s' "$1" "$2" \
        "$(stat -c %s "$work/layout/blobs/sha256/$2")"
}
layer() { # FOLDER
    local hash
    # Names and times alone would make the same files another layer each time.
    tar -C "$1" --sort=name --mtime="@$epoch" --numeric-owner --one-file-system -cf "$work/layer" .
    ids=$ids${ids:+,}\"sha256:$(sha256sum "$work/layer" | cut -d ' ' -f 1)\"
    gzip -n "$work/layer"
    hash=$(blob "$work/layer.gz")
    layers=$layers${layers:+,}$(descriptor layer.v1.tar+gzip "$hash")}
}

if [ -n "$base" ]; then
    name=sabul-lab
    layer "$base"
    # Capabilities and devices that `sabul lab` needs; the engine grants them by --cap-add and --device.
    run='"Cmd":["/bin/bash"],"WorkingDir":"/root","Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],"Labels":{"sabul.needs":"--cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun"}'
else
    name=sabul
    install -d -m 1777 "$work/program/tmp"
    install -d "$work"/program/{etc,srv,ticket}
    # So that nothing runs as root which need not.
    echo 'sabul:x:65534:65534:sabul:/srv:/bin/sabul' >"$work/program/etc/passwd"
    chown 65534:65534 "$work"/program/{srv,ticket}
    run='"User":"65534:65534","Entrypoint":["/usr/local/bin/sabul"],"Cmd":["serve","--root","/srv","--ticket-file","/ticket/ticket"],"WorkingDir":"/srv","ExposedPorts":{"4850/tcp":{},"4850/udp":{}},"Volumes":{"/srv":{},"/ticket":{}}'
fi
install -D -m 755 "$program" "$work/program/usr/local/bin/sabul"
install -D -m 644 LICENSE-MIT "$work/program/usr/local/share/doc/sabul/LICENSE-MIT"
install -D -m 644 LICENSE-APACHE "$work/program/usr/local/share/doc/sabul/LICENSE-APACHE"
if [ -n "$base" ]; then
    mkdir -p "$work/program/root"
    cp -r scenarios "$work/program/root/"
fi
layer "$work/program"

printf '{"created":"%s","architecture":"%s","os":"linux","config":{%s},"rootfs":{"type":"layers","diff_ids":[%s]}}' \
    "$created" "$arch" "$run" "$ids" >"$work/config"
config=$(blob "$work/config")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s},"layers":[%s]}' \
    "$(descriptor config.v1+json "$config")" "$layers" >"$work/manifest"
manifest=$(blob "$work/manifest")
printf '{"schemaVersion":2,"manifests":[%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
    "$(descriptor manifest.v1+json "$manifest")" "$name:$version" >"$work/layout/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"
file=$out/$name-$version-$arch.oci.tar
tar -C "$work/layout" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -cf "$file" .
ls -l "$file"
