#!/usr/bin/env bash
# Installs, runs, upgrades and purges our packages in a Debian 12 guest with systemd, and prints the result of each check.
# usage: packages.sh [--kernel 6.1|6.12] [--new FILE] [--old FILE] [PART...]
#
#   --new FILE   the .deb to test (the one in target/dist, where `make dist` writes it)
#   --old FILE   the .deb to upgrade from (the same files as --new, with version 0.0.9)
#   PART         upgrade, work, files, ship, sandbox, restarts, removal (all, in this order); see lab/debian/package-test.sh
#
# The output of the guest is kept in target/lab/packages.log, and its kernel's and systemd's messages in target/lab/packages.kernel.log.
#
# exit status: 0 every check was ok; 1 a check failed, or the guest ended early; 2 wrong usage
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lab/debian/guest.sh
. lab/debian/guest.sh

kernel=6.1 new='' old=''
take_options "kernel new old" "$@"

if [ -z "$new" ]; then
    # Other packages, such as isotherm-dev_..., begin otherwise.
    for file in target/dist/isotherm_*_amd64.deb; do [ ! "$file" -nt "${new:-/}" ] || new=$file; done
    [ -f "$new" ] || fail "there is no target/dist/isotherm_VERSION_amd64.deb: run make dist, or name a file with --new"
fi
[ -f "$new" ] || fail "there is no file $new"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$old" ]; then
    # Not compressed well, because it is used once. Maintainer scripts and files are those of --new: what is tested is the upgrade.
    old=$work/$(dpkg-deb -f "$new" Package)_0.0.9_$(dpkg-deb -f "$new" Architecture).deb
    dpkg-deb -R "$new" "$work/tree"
    sed -i 's/^Version: .*/Version: 0.0.9/' "$work/tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/tree" "$old" >/dev/null
    rm -r "$work/tree"
fi

# Linked statically: the guest's C library is older than ours may be.
cc -O1 -Wall -Werror -static -o "$work/map-file" lab/debian/map-file.c || fail "cc could not build map-file: run scripts/setup.sh build"

echo "guest packages (Debian 12, kernel $kernel): $(basename "$old") -> $(basename "$new")"
in_guest packages "$kernel" --bring "$new" --bring "$old" --bring "$work/map-file" -- lab/debian/package-test.sh "$(basename "$new")" "$(basename "$old")" "${parts[@]}"
