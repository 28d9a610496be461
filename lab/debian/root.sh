#!/usr/bin/env bash
# Makes a small root tree of a Debian release from its packages, as a tar file, and prints the path of that file.
# usage: root.sh SUITE [PACKAGE...]      SUITE is bullseye (11), bookworm (12) or trixie (13)
#
# Kept in target/lab/roots under a name that holds a checksum of the list of packages. Delete that directory to get newer packages.
# Needs mmdebstrap, and the network the first time. Needs no root where users may make namespaces (and uidmap is installed).
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || {
    echo "root: no release was given; usage: lab/debian/root.sh bullseye|bookworm|trixie [PACKAGE...]" >&2
    exit 2
}
suite=$1
shift
command -v mmdebstrap >/dev/null || {
    echo "root: mmdebstrap was not found: run scripts/setup.sh packages" >&2
    exit 1
}
store=target/lab/roots
mkdir -p "$store"
key=$(printf '%s\n' "$suite" "$@" | sort -u | sha256sum | cut -c -8)
out=$PWD/$store/$suite-$key.tar
if [ ! -f "$out" ]; then
    echo "root: fetching packages of $suite${*:+ with $*}" >&2
    packages=$*
    # Release files of old suites are no longer renewed, but still signed. Guests mount a /dev of their own.
    mmdebstrap --format=tar --variant=minbase --skip=output/dev --aptopt='Acquire::Check-Valid-Until "false"' \
        ${packages:+--include="${packages// /,}"} "$suite" "$out.part" >"$store/$suite.log" 2>&1 </dev/null || {
        tail -n 20 "$store/$suite.log" >&2
        echo "root: mmdebstrap $suite failed; its whole output is in $store/$suite.log" >&2
        exit 1
    }
    # Renamed when complete, so that an interrupted run is not taken for a finished one.
    mv "$out.part" "$out"
fi
echo "$out"
