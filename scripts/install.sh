#!/usr/bin/env bash
# Installs what was built: the program, the library with its header, the server, the shipper, and the file for pkg-config.
# usage: install.sh BUILD_DIR [PART...]     parts: program library server shipper (the first two if none is named, and the others if they were built)
# PREFIX (default: /usr/local) is where the files will be used. DESTDIR (default: none) is prepended to it, to build packages.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: install.sh BUILD_DIR [program] [library]}
shift
if [ $# -eq 0 ]; then
    set -- program library
    [ ! -e "$build/isotherm-serve" ] || set -- "$@" server
    [ ! -e "$build/isotherm-ship" ] || set -- "$@" shipper
fi
prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/Cargo.toml" | head -n 1)

built() { # built FILE
    [ -e "$build/$1" ] || {
        echo "install: $build/$1 is missing: run \`make build\` first" >&2
        exit 1
    }
}

program() {
    built isotherm
    install -D -m 755 "$build/isotherm" "$to/bin/isotherm"
}

# Not a program that people start: `isotherm serve` finds it there.
server() {
    built isotherm-serve
    install -D -m 755 "$build/isotherm-serve" "$to/libexec/isotherm/isotherm-serve"
}

shipper() {
    built isotherm-ship
    install -D -m 755 "$build/isotherm-ship" "$to/bin/isotherm-ship"
}

library() {
    local file=libisotherm.so
    built $file
    built libisotherm.a
    install -D -m 755 "$build/$file" "$to/lib/$file.$version"
    # The name that programs load at run time, and the name that they are linked with.
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
    program | library | server | shipper) "$part" ;;
    *)
        echo "install: unknown part $part; parts are program, library, server and shipper" >&2
        exit 2
        ;;
    esac
done
