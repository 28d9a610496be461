#!/usr/bin/env bash
# Runs the programs of the image: `make image-check`. As the image's own user, and as root with the capabilities of the chart and no others.
# usage: check.sh [NAME:TAG]
#
# buildah, and no container runtime: with chroot isolation there is no pid namespace and no seccomp filter of a runtime. What a runtime adds is
# not tried here.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=${1:-localhost/isotherm:$version}
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
five=(CAP_BPF CAP_PERFMON CAP_SYS_PTRACE CAP_SYS_NICE CAP_SYSLOG)
failed=0
fail() {
    echo "image-check: $1" >&2
    failed=1
}

container=$(buildah from "$name")
trap 'buildah rm "$container" >/dev/null' EXIT
in_image() { # in_image FLAGS... -- COMMAND
    local flags=()
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    buildah run "${flags[@]}" "$container" -- "$@"
}
as_root() { # as_root CAPABILITIES... -- COMMAND
    local flags=(--user 0:0 --cap-drop all)
    while [ "$1" != -- ]; do flags+=(--cap-add "$1"); shift; done
    in_image "${flags[@]}" "$@"
}

for program in isotherm isotherm-serve isotherm-ship isotherm-kube; do
    in_image -- "/usr/bin/$program" --version || fail "$program does not start"
done
doctor=$(in_image -- /usr/bin/isotherm doctor --json || true)
jq -e . <<<"$doctor" >/dev/null || fail "doctor as the user of the image prints no JSON"
for file in /bin/sh /bin/bash /usr/bin/perl /usr/bin/apt-get; do
    ! in_image -- "$file" -c true 2>/dev/null || fail "$file is in the image"
done
exit_of() { "$@" >/dev/null 2>&1 && echo 0 || echo $?; }
[ "$(exit_of in_image -- /usr/bin/isotherm status --socket /run/isotherm/control.sock)" = 1 ] ||
    fail "the health check passes, and nothing runs"

# With the five capabilities the page-table source works, and doctor names each that is taken away.
all=$(as_root "${five[@]}" -- /usr/bin/isotherm doctor --json || true)
for missing in "${five[@]}"; do
    rest=()
    for one in "${five[@]}"; do [ "$one" = "$missing" ] || rest+=("$one"); done
    without=$(as_root "${rest[@]}" -- /usr/bin/isotherm doctor --json || true)
    [ "$without" != "$all" ] || fail "doctor is the same without $missing"
    grep -q "$missing" <<<"$without" || fail "doctor does not name $missing, which is missing"
done
exit "$failed"
