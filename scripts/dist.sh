#!/usr/bin/env bash
# Builds what is published, into target/dist: packages for Debian and for RPM, a tarball, licences, a list of parts, and checksums.
# usage: dist.sh
#
# Two builds of one commit have equal bytes, in whatever folder they are made: paths are mapped, and times are that of the commit
# (SOURCE_DATE_EPOCH, if that is set). The same compiler, C library and tools are assumed.
#
# The program `isotherm` is linked statically: one file runs on every distribution with its kernel's features. The server and the
# shipper find names and trust certificates by the system's C library, and are not.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
dist=$here/target/dist
build=$here/target/dist-build
triple=x86_64-unknown-linux-gnu
maintainer=$(sed -n 's/^maintainer = "\(.*\)"$/\1/p' crates/isotherm/Cargo.toml)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
tools=$here/target/tools/bin

say() { echo "dist: $1 ($SECONDS s)" >&2; }

# Programs, for all packages.
programs() {
    local mapped="--remap-path-prefix=$here=/usr/src/isotherm --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo"
    export CARGO_TARGET_DIR=$build
    say "isotherm"
    # libelf.a and libz.a are where the compiler of C finds them.
    LIBBPF_SYS_LIBRARY_PATH=$(dirname "$(cc -print-file-name=libz.a)") RUSTFLAGS="$mapped -C target-feature=+crt-static" \
        cargo build --profile dist --locked -q -p isotherm --features static --target $triple
    say "isotherm-serve, isotherm-ship, isotherm-kube, libisotherm"
    RUSTFLAGS=$mapped cargo build --profile dist --locked -q -p isotherm-serve -p isotherm-ship -p isotherm-kube -p isotherm-c \
        --features isotherm-ship/aws,isotherm-ship/gcp,isotherm-ship/azure
    unset CARGO_TARGET_DIR
    mkdir -p "$dist/programs"
    install -m 755 "$build/$triple/dist/isotherm" "$build"/dist/{isotherm-serve,isotherm-ship,isotherm-kube} "$dist/programs"
    install -m 644 "$build"/dist/libisotherm.{so,a} "$dist/programs"
}

# Licences and parts. The list of parts has a number of its own and a time: made of the commit here.
documents() {
    say "licences and the list of parts"
    "$tools/cargo-about" generate --locked --workspace --fail -c deploy/about.toml -o "$dist/LICENSES-third-party.txt" deploy/about.hbs
    "$tools/cargo-sbom" sbom --output-format spdx_json_2_3 | jq --sort-keys \
        --arg at "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" --arg name "isotherm-$version" \
        '.name = $name | .creationInfo.created = $at | .documentNamespace = "https://spdx.org/spdxdocs/" + $name
         | .packages |= sort_by(.SPDXID) | .relationships |= sort_by(.spdxElementId, .relatedSpdxElement) | if .files then .files |= sort_by(.SPDXID) else . end' \
        >"$dist/isotherm-$version.spdx.json"
}

# A tree as it is installed.
tree() { # tree FOLDER LIBDIR PART...
    local to=$1 libdir=$2
    shift 2
    rm -rf "$to"
    DESTDIR=$to PREFIX=/usr LIBDIR=$libdir scripts/install.sh "$dist/programs" "$@"
}

documented() { # documented TREE PACKAGE: manual pages are compressed; changes and licences are added
    local doc=$1/usr/share/doc/$2
    [ ! -d "$1/usr/share/man" ] || find "$1/usr/share/man" -type f -name '*.[0-9]' -exec gzip -9n {} +
    mkdir -p "$doc"
    gzip -9nc CHANGELOG.md >"$doc/NEWS.gz"
    printf '%s (%s) unstable; urgency=medium\n\n  * See NEWS.gz.\n\n -- %s  %s\n' "$2" "$version" "$maintainer" \
        "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9nc >"$doc/changelog.gz"
    cp deploy/debian/copyright "$doc/copyright"
    [ "$2" != isotherm ] || install -D -m 644 deploy/debian/lintian-overrides "$1/usr/share/lintian/overrides/isotherm"
    [ "$2" != isotherm ] || gzip -9nc "$dist/LICENSES-third-party.txt" >"$doc/LICENSES-third-party.txt.gz"
    # Modes and times do not depend on who builds.
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -type f ! -perm -u+x -exec chmod 644 {} +
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# The library and what compilers take, as Debian splits them. By dpkg-deb: cargo-deb has no place for the file by which other packages find
# out what they depend on (shlibs).
library_packages() {
    local lib runtime=$dist/tree/libisotherm0 dev=$dist/tree/libisotherm-dev
    lib=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    say "packages of the library"
    tree "$dev" "${lib#usr/}" library
    mkdir -p "$runtime/$lib" "$runtime/DEBIAN" "$dev/DEBIAN"
    mv "$dev/$lib"/libisotherm.so.* "$runtime/$lib"
    echo "activate-noawait ldconfig" >"$runtime/DEBIAN/triggers"
    echo "libisotherm ${version%%.*} libisotherm0 (>= $version)" >"$runtime/DEBIAN/shlibs"
    control libisotherm0 libs "memory in blocks of page frames, by orders and migrate types" "libc6 (>= 2.34), libgcc-s1" >"$runtime/DEBIAN/control"
    control libisotherm-dev libdevel "header, static library and pkg-config file of libisotherm" "libisotherm0 (= $version)" >"$dev/DEBIAN/control"
    documented "$runtime" libisotherm0
    documented "$dev" libisotherm-dev
    (cd "$runtime" && find usr -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
    (cd "$dev" && find usr -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
    for tree in "$runtime" "$dev"; do
        dpkg-deb --root-owner-group --build "$tree" "$dist" >/dev/null
    done
}

control() { # control PACKAGE SECTION SYNOPSIS DEPENDS
    cat <<CONTROL
Package: $1
Source: isotherm
Version: $version
Section: $2
Priority: optional
Architecture: amd64
Maintainer: $maintainer
Depends: $4
Description: $3
 Isotherm's pools hand out memory as a kernel's allocator does: pcp lists,
 shuffled and coloured frames, huge pages, DAX devices.
CONTROL
}

packages() {
    local name
    tree "$dist/tree/isotherm" lib program server shipper man completions service
    documented "$dist/tree/isotherm" isotherm
    library_packages
    tree "$dist/tree/isotherm-devel" lib64 library
    documented "$dist/tree/isotherm-devel" isotherm-devel
    say "packages of isotherm"
    "$tools/cargo-deb" --no-build --no-strip --package isotherm --target $triple --output "$dist" --quiet
    for name in isotherm isotherm-c; do
        "$tools/cargo-generate-rpm" --package crates/$name --target $triple --output "$dist" --source-date "$SOURCE_DATE_EPOCH" --payload-compress zstd
    done
}

tarball() {
    local name=isotherm-$version-x86_64-linux at=$dist/tree/tarball
    say "tarball"
    rm -rf "$at"
    mkdir -p "$at/$name"
    DESTDIR=$at/$name PREFIX=/ scripts/install.sh "$dist/programs" program library server shipper man completions
    # Wherever it is unpacked.
    sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$at/$name/lib/pkgconfig/isotherm.pc"
    cp -r deploy/isotherm.toml deploy/services.toml deploy/systemd deploy/default README.md LICENSE-APACHE LICENSE-MIT CHANGELOG.md "$dist/LICENSES-third-party.txt" "$at/$name/"
    tar --create --directory "$at" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        --mode='u+rwX,go+rX,go-w' --format=gnu "$name" | xz -T1 -6 >"$dist/$name.tar.xz"
}

rm -rf "$dist"
mkdir -p "$dist"
programs
documents
packages
tarball
cd "$dist"
sha256sum -- *.deb *.rpm *.tar.xz *.spdx.json LICENSES-third-party.txt >SHA256SUMS
say "done"
ls -l -- *.deb *.rpm *.tar.xz *.spdx.json SHA256SUMS
