#!/usr/bin/env bash
# Runs the programs of the image: `make image-check`. As the image's own user, and as root with the capabilities of the chart and no others, under the
# seccomp profile of deploy/profiles. What needs capabilities is skipped, and said, where we do not have them.
# usage: check.sh [NAME:TAG]
#
# By buildah, and no container runtime: with chroot isolation there are no namespaces of processes and cgroups. What a runtime adds is not tried.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=${1:-localhost/isotherm:$version}
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
five=(BPF PERFMON SYS_PTRACE SYS_NICE SYSLOG)
# What buildah gives by default. `--cap-drop all` would also drop what is added.
default=(AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT)
failed=0
fail() {
    echo "image-check: $1" >&2
    failed=1
}

container=$(buildah from --security-opt "seccomp=$PWD/deploy/profiles/isotherm-seccomp.json" "$name")
child=
cleanup() {
    [ -z "$child" ] || kill "$child" 2>/dev/null || true
    buildah rm "$container" >/dev/null
}
trap cleanup EXIT
in_image() { # in_image COMMAND: as the user of the image
    buildah run "${default[@]/#/--cap-drop=CAP_}" "$container" -- "$@"
}
as_root() { # as_root "CAPABILITIES" COMMAND
    local names
    read -ra names <<<"$1"
    shift
    buildah run --user 0:0 "${default[@]/#/--cap-drop=CAP_}" "${names[@]/#/--cap-add=CAP_}" "$container" -- "$@"
}
state_of() { # state_of NAME <<<JSON: of a capability in the output of doctor
    jq -r --arg name "cap-$(tr 'A-Z_' 'a-z-' <<<"$1")" '.findings[] | select(.name == $name).state'
}

for program in isotherm isotherm-serve isotherm-ship isotherm-kube; do
    in_image "/usr/bin/$program" --version || fail "$program does not start"
done
source=$(in_image /usr/bin/isotherm doctor --json 2>/dev/null | jq -r .source) || true
[ "$source" = referenced ] || fail "without capabilities the source is $source, and not referenced"
for file in /bin/sh /bin/bash /usr/bin/perl /usr/bin/apt-get; do
    ! in_image "$file" -c true 2>/dev/null || fail "$file is in the image"
done
# As the image says it, word by word.
mapfile -t health < <(buildah inspect --type image "$name" | jq -r '.Docker.config.Healthcheck.Test[1:][]')
! in_image "${health[@]}" >/dev/null 2>&1 ||
    fail "the health check passes, and nothing runs"

# With the five capabilities the page-table source works, and doctor names each that is taken away.
doctor=$(as_root "${five[*]}" /usr/bin/isotherm doctor --json 2>/dev/null || true)
if [ "$(jq -r .source <<<"$doctor")" = page-table ]; then
    for missing in "${five[@]}"; do
        rest=()
        for one in "${five[@]}"; do [ "$one" = "$missing" ] || rest+=("$one"); done
        without=$(as_root "${rest[*]}" /usr/bin/isotherm doctor --json 2>/dev/null || true)
        [ "$(state_of "$missing" <<<"$doctor")" = present ] || fail "doctor does not see CAP_$missing"
        [ "$(state_of "$missing" <<<"$without")" = absent ] || fail "doctor sees CAP_$missing, which was dropped"
        echo "without CAP_$missing: source $(jq -r .source <<<"$without")"
    done
    # The monitor of the chart on a process of ours, in a dry run, and the health check meanwhile.
    sleep 600 &
    child=$!
    as_root "${five[*]} DAC_READ_SEARCH" /usr/bin/isotherm run --dry-run -p "$child" -d 8s --socket /run/isotherm/control.sock --json \
        >target/image-check.json 2>target/image-check.err &
    run=$! healthy=no
    while kill -0 "$run" 2>/dev/null; do
        ! as_root "" "${health[@]}" >/dev/null 2>&1 || healthy=yes
        sleep 0.2
    done
    wait "$run" || fail "the monitor failed: $(cat target/image-check.err)"
    jq -e '.targets | length == 1' target/image-check.json >/dev/null || fail "the monitor has not watched the process"
    [ "$healthy" = yes ] || fail "the health check fails while the monitor runs"
else
    echo "skipped: needs the page-table source (what capabilities do): $(jq -r .source_note <<<"$doctor")"
fi
exit "$failed"
