#!/usr/bin/env bash
# Installs what was built: the program, the library with its header, the server, the shipper, manual pages, completions, and what a service
# manager takes.
# usage: install.sh BUILD_DIR [PART...]     parts: program library server shipper kube man completions service (the first two if none is named, with
#        server and shipper if they were built, and the pages and completions of what was)
# PREFIX (default: /usr/local) is where the files will be used, LIBDIR (default: lib) where libraries are below it. DESTDIR (default: none) is
# prepended, to build packages.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: install.sh BUILD_DIR [program] [library]}
shift
if [ $# -eq 0 ]; then
    set -- program library
    [ ! -e "$build/isotherm-serve" ] || set -- "$@" server
    [ ! -e "$build/isotherm-ship" ] || set -- "$@" shipper
    set -- "$@" man completions
fi
prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
libdir=${LIBDIR:-lib}
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

# Turns annotations of pods into assignments of cgroups: for nodes of Kubernetes.
kube() {
    built isotherm-kube
    install -D -m 755 "$build/isotherm-kube" "$to/bin/isotherm-kube"
    mkdir -p "$to/share/man/man8"
    "$build/isotherm-kube" --print man-page >"$to/share/man/man8/isotherm-kube.8"
}

library() {
    local file=libisotherm.so
    built $file
    built libisotherm.a
    install -D -m 644 "$build/$file" "$to/$libdir/$file.$version"
    # The name that programs load at run time, and the name that they are linked with.
    ln -sfn "$file.$version" "$to/$libdir/$file.${version%%.*}"
    ln -sfn "$file.${version%%.*}" "$to/$libdir/$file"
    install -D -m 644 "$build/libisotherm.a" "$to/$libdir/libisotherm.a"
    install -D -m 644 "$here/crates/isotherm-c/include/isotherm.h" "$to/include/isotherm.h"
    mkdir -p "$to/$libdir/pkgconfig"
    sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" "$here/crates/isotherm-c/isotherm.pc.in" \
        >"$to/$libdir/pkgconfig/isotherm.pc"
}

# Made by the programs themselves.
man() {
    built isotherm
    "$build/isotherm" generate man "$to/share/man/man1"
    if [ -e "$build/isotherm-ship" ]; then "$build/isotherm-ship" --print man-page >"$to/share/man/man1/isotherm-ship.1"; fi
    if [ -e "$build/isotherm-serve" ]; then
        mkdir -p "$to/share/man/man8"
        "$build/isotherm-serve" --print man-page >"$to/share/man/man8/isotherm-serve.8"
    fi
}

completions() {
    built isotherm
    local share=$to/share
    mkdir -p "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
    "$build/isotherm" generate completions bash >"$share/bash-completion/completions/isotherm"
    "$build/isotherm" generate completions zsh >"$share/zsh/vendor-completions/_isotherm"
    "$build/isotherm" generate completions fish >"$share/fish/vendor_completions.d/isotherm.fish"
    [ -e "$build/isotherm-ship" ] || return 0
    "$build/isotherm-ship" --print bash >"$share/bash-completion/completions/isotherm-ship"
    "$build/isotherm-ship" --print zsh >"$share/zsh/vendor-completions/_isotherm-ship"
    "$build/isotherm-ship" --print fish >"$share/fish/vendor_completions.d/isotherm-ship.fish"
}

# Units for programs in /usr, users and folders, and settings. Not for another prefix: a service manager does not look there.
service() {
    [ "$prefix" = /usr ] || {
        echo "install: the units are for programs below /usr: set PREFIX=/usr" >&2
        exit 1
    }
    local unit
    for unit in "$here"/deploy/systemd/*.service; do
        install -D -m 644 "$unit" "$to/lib/systemd/system/$(basename "$unit")"
    done
    install -D -m 644 "$here/deploy/systemd/isotherm.sysusers" "$to/lib/sysusers.d/isotherm.conf"
    install -D -m 644 "$here/deploy/systemd/isotherm.tmpfiles" "$to/lib/tmpfiles.d/isotherm.conf"
    install -D -m 644 "$here/deploy/isotherm.toml" "${DESTDIR:-}/etc/isotherm/isotherm.toml"
    install -D -m 644 "$here/deploy/services.toml" "${DESTDIR:-}/etc/isotherm/services.toml"
    install -D -m 644 "$here/deploy/default/isotherm-serve" "${DESTDIR:-}/etc/default/isotherm-serve"
    install -D -m 644 "$here/deploy/default/isotherm-ship" "${DESTDIR:-}/etc/default/isotherm-ship"
}

for part in "$@"; do
    case $part in
    program | library | server | shipper | kube | man | completions | service) "$part" ;;
    *)
        echo "install: unknown part $part; parts are program, library, server, shipper, kube, man, completions and service" >&2
        exit 2
        ;;
    esac
done
