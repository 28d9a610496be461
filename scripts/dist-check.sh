#!/usr/bin/env bash
# Checks what `make dist` has built: lintian has no error, rpm reads its packages, units and programs are what they say, and checksums hold.
# usage: dist-check.sh       REBUILD=1: also builds the same commit in another folder, and compares every file byte by byte
#
# exit status: 0 every check holds; 1 one does not
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$PWD/target/dist
failed=0
fail() {
    echo "dist-check: $1" >&2
    failed=1
}

[ -e "$dist/SHA256SUMS" ] || {
    echo "dist-check: $dist has no packages: run make dist" >&2
    exit 1
}
(cd "$dist" && sha256sum --quiet --check SHA256SUMS) || fail "a file differs from SHA256SUMS"

for package in "$dist"/*.deb; do
    # 2: it found errors, which are counted. 1: it could not be run to its end.
    said=$(lintian --no-tag-display-limit "$package" 2>&1) || [ $? -eq 2 ] || fail "lintian does not check $package: $said"
    errors=$(grep -c '^E:' <<<"$said") || true
    warnings=$(grep -c '^W:' <<<"$said") || true
    echo "lintian $(basename "$package"): $errors errors, $warnings warnings"
    [ "$errors" -eq 0 ] || fail "$(grep '^E:' <<<"$said")"
done

for package in "$dist"/*.rpm; do
    rpm --query --package --list "$package" >/dev/null || fail "rpm does not read $package"
    echo "rpm $(basename "$package"): $(rpm --query --package --list "$package" | wc -l) files"
done

# Unpacked, it is ready: what install.md says of it.
unpacked=$(mktemp -d)
tar --extract --xz --file "$dist"/isotherm-*-x86_64-linux.tar.xz --directory "$unpacked" --strip-components=1
for file in bin/isotherm bin/isotherm-ship libexec/isotherm/isotherm-serve lib/pkgconfig/isotherm.pc share/man/man1/isotherm.1 \
    systemd/isotherm.service default/isotherm-ship isotherm.toml services.toml; do
    [ -e "$unpacked/$file" ] || fail "the tarball lacks $file"
done
"$unpacked/bin/isotherm" --version || fail "isotherm of the tarball does not start"
# Without the space that it ends with.
flags=$(PKG_CONFIG_PATH=$unpacked/lib/pkgconfig pkg-config --cflags isotherm | xargs)
[ -e "${flags#-I}/isotherm.h" ] || fail "the tarball's isotherm.pc does not find its header: $flags"
rm -r "$unpacked"

# One file for every distribution: no loader, and so no C library of a version.
headers=$(readelf --program-headers --wide "$dist/programs/isotherm") || fail "readelf does not read isotherm"
! grep -q INTERP <<<"$headers" || fail "isotherm is not linked statically"
newest=$(objdump --dynamic-syms "$dist"/programs/isotherm-{serve,ship,kube} "$dist/programs/libisotherm.so" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
echo "isotherm: static; the others need $newest"
[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.34 ] || fail "a program needs $newest, and RHEL 9 has GLIBC_2.34"

# At most so exposed. The monitor takes capabilities that these points are for.
declare -A limits=([isotherm]=2.4 [isotherm-serve]=1.9 [isotherm-ship]=1.9)
for unit in "${!limits[@]}"; do
    exposure=$(systemd-analyze security --offline=true "deploy/systemd/$unit.service" 2>/dev/null | sed -n 's/.*Overall exposure level for [^:]*: \([0-9.]*\) .*/\1/p')
    echo "$unit.service: exposure $exposure (at most ${limits[$unit]})"
    awk -v is="${exposure:-10}" -v most="${limits[$unit]}" 'BEGIN {exit !(is <= most)}' || fail "$unit.service has exposure ${exposure:-unknown}"
done

if [ -n "${REBUILD:-}" ]; then
    other=$(mktemp -d)
    trap 'rm -rf "$other"' EXIT
    git clone --quiet . "$other/isotherm"
    mkdir "$other/isotherm/target"
    ln -s "$PWD/target/tools" "$other/isotherm/target/tools"
    "$other/isotherm/scripts/dist.sh" >/dev/null
    diff "$dist/SHA256SUMS" "$other/isotherm/target/dist/SHA256SUMS" && echo "built again in $(basename "$other"): equal bytes" || fail "another build has other bytes"
fi
exit $failed
