#!/usr/bin/env bash
# Installs what was built: the program, the library with its header, and the file for pkg-config.
# usage: install.sh BUILD_DIR [PART...]     parts: program library (both if none is named)
# PREFIX (/usr/local) is where it will be used from, DESTDIR (none) is put before it for packages.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: install.sh BUILD_DIR [program] [library]}
shift
[ $# -gt 0 ] || set -- program library
prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/Cargo.toml" | head -n 1)

program() {
    install -D -m 755 "$build/isotherm" "$to/bin/isotherm"
}

library() {
    local file=libisotherm.so
    install -D -m 755 "$build/$file" "$to/lib/$file.$version"
    # The name that programs ask for at run time, and the one that they are linked by.
    ln -sfn "$file.$version" "$to/lib/$file.${version%%.*}"
    ln -sfn "$file.${version%%.*}" "$to/lib/$file"
    install -D -m 644 "$build/libisotherm.a" "$to/lib/libisotherm.a"
    install -D -m 644 "$here/crates/isotherm-c/include/isotherm.h" "$to/include/isotherm.h"
    mkdir -p "$to/lib/pkgconfig"
    sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/crates/isotherm-c/isotherm.pc.in" \
        >"$to/lib/pkgconfig/isotherm.pc"
}

for part in "$@"; do
    case $part in
    program | library) "$part" ;;
    *)
        echo "install: unknown part $part; parts are program and library" >&2
        exit 2
        ;;
    esac
done
