#!/usr/bin/env bash
# Runs the programs of our image in containers of crun, as the manifest has them. Runs in the guest that lab/debian.sh boots; lab/image.sh
# starts it there, with the image's files and the pod beside it.
#
# Of the pod, the monitor and the server are run; `kube` takes an API server. AppArmor is not in this guest, and the monitor's seccomp profile
# is the one that we ship, since a runtime's default is not at hand.
#
# Prints one line per check (checks.sh). Exit status 1: a check failed.
# shellcheck disable=SC2016 # conditions that `within` evaluates
set -uo pipefail
cd "$(dirname "$0")" || exit 2
export LC_ALL=C SYSTEMD_PAGER='' SYSTEMD_COLORS=0
# shellcheck source=lab/debian/checks.sh
. ./checks.sh

bundles=/var/lib/isotherm-lab
root=$bundles/root
volumes=$bundles/volumes
settings=$volumes/settings/settings.toml
mkdir -p $root $volumes
tar -x --numeric-owner -f image.tar -C $root
rm image.tar
group=$(jq .spec.securityContext.fsGroup pod.json)
token=token-of-a-secret-0
capabilities=$(jq -r '.spec.containers[] | select(.name == "monitor").securityContext.capabilities.add[]' pod.json)

# As a kubelet makes them: folders in memory belong to the pod's group, and so do secrets.
make_volumes() {
    local name
    for name in $(jq -r '.spec.volumes[] | select(.emptyDir).name' pod.json); do
        mkdir -p $volumes/"$name"
        mount -t tmpfs -o mode=2777,gid="$group" tmpfs $volumes/"$name"
    done
    mkdir -p $volumes/settings $volumes/token $volumes/account
    # The folder of a ConfigMap may be written to by everyone.
    chmod 0777 $volumes/settings
    # The schemes of the manifest act on pods that `kube` has found.
    { jq -r '.settings["settings.toml"]' pod.json && printf '[[scheme]]\nname = "hot"\naction = "collapse"\n'; } >$settings
    for name in "${budgets[@]}"; do
        # shellcheck disable=SC2086 # words
        set_key $name
    done
    echo $token >$volumes/token/token
    chgrp "$group" $volumes/token/token
    chmod 0440 $volumes/token/token
}

# Makes the bundle of a container. FILTER changes it.
bundle() { # bundle NAME OF-CONTAINER [FILTER]
    local at=$bundles/$1 profile=null
    rm -rf "$at"
    mkdir -p "$at"
    (cd "$at" && crun spec)
    [ "$2" != monitor ] || profile=$(cat isotherm-seccomp.json)
    jq --argjson pod "$(jq "${pod:-.spec}" pod.json)" --arg name "$2" --argjson image "$(cat image.json)" --arg root $root --argjson seccomp "$profile" \
        --argjson volumes "$(jq --arg at $volumes '[.spec.volumes[] | {key: .name, value: (.hostPath.path // ($at + "/" + .name))}] | from_entries' pod.json)" \
        --argjson fields '{"status.podIP": "127.0.0.1", "spec.nodeName": "lab"}' -f pod-to-oci.jq "$at/config.json" >"$at/made.json" || return
    jq "${3:-.}" "$at/made.json" >"$at/config.json"
}
start() { # start NAME OF-CONTAINER
    bundle "$1" "$2" || return
    crun --systemd-cgroup run --detach --bundle $bundles/"$1" "$1" >$state/"$1".log 2>&1 </dev/null || fail "crun run: $(tail -n 1 $state/"$1".log)"
}
# Runs a command in a container of its own, and waits for its end.
once() { # once FILTER COMMAND...
    local filter=$1
    shift
    bundle once monitor "$filter | .process.args = $(jq -n --args '$ARGS.positional' -- "$@")" || return
    crun --systemd-cgroup run --bundle $bundles/once once </dev/null
}
only() { # only CAPABILITY...: a filter
    echo ".process.capabilities |= map_values(if . == [] then . else $(jq -n --args '$ARGS.positional | map("CAP_" + .)' -- "$@") end)"
}
# As the image says, and not the manifest: its own user, and no capability.
as_image='.process.user = {uid: ($ENV.image_user | split(":")[0] | tonumber), gid: ($ENV.image_user | split(":")[1] | tonumber)} | .process.capabilities |= map_values([])'
image_user=$(jq -r .User image.json)
export image_user
state_of() { crun state "$1" 2>/dev/null | jq -r .status; }
running() { [ "$(state_of "$1")" = running ]; }
pid_in() { crun state "$1" | jq .pid; }
said_by() { tail -n "${2:-1}" $state/"$1".log; }
status() { crun exec monitor /usr/bin/isotherm status --json --socket /run/isotherm/control.sock; }

# --- the image as it is

starts() { # starts PROGRAM
    once "$as_image" /usr/bin/"$1" --version || fail "$1 does not start"
}
uses_mappings() {
    local source
    source=$(once "$as_image" /usr/bin/isotherm doctor --json 2>/dev/null | jq -r .source)
    note "source $source"
    [ "$source" = referenced ] || fail "without capabilities the source is $source, and not referenced"
}
has_no_shell() {
    local file
    for file in /bin/sh /bin/bash /usr/bin/perl /usr/bin/apt-get; do
        [ ! -e $root$file ] || fail "$file is in the image" || return
    done
}
image() {
    local program
    for program in isotherm isotherm-serve isotherm-ship isotherm-kube; do check "$program starts as the user of the image" starts $program; done
    check "the image has no shell" has_no_shell
    check "without capabilities mappings are measured" uses_mappings
}

# --- the pod, on the host's processes

healthy() { jq -r '.Healthcheck.Test[1:][]' image.json | xargs -d '\n' crun exec monitor >/dev/null 2>&1; }
monitor_starts() {
    start monitor monitor || return
    # The start-up probe of the manifest: 24 times 5 s.
    within 120 eval 'status >/dev/null 2>&1 || ! running monitor'
    running monitor || { said_by monitor 20; fail "the monitor has ended: $(said_by monitor)"; } || return
    status >/dev/null || fail "isotherm status does not answer: $(said_by monitor)"
}
has_just_its_capabilities() {
    local want have
    want=$(jq -r '[.process.capabilities.bounding[]] | sort | join(" ")' $bundles/monitor/config.json)
    # By their numbers in the mask.
    have=$(perl -e 'my @names = qw(CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST
        NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG
        MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE);
        my $mask = hex shift; print join " ", sort map { "CAP_$names[$_]" } grep { $mask >> $_ & 1 } 0 .. $#names' \
        "$(sed -n 's/^CapEff:\s*//p' "/proc/$(pid_in monitor)/status")")
    note "$have"
    [ "$have" = "$want" ] || fail "it has $have, and not $want"
}
is_confined() {
    local of
    of=/proc/$(pid_in monitor)/status
    grep -q '^Seccomp:\s*2' "$of" && grep -q '^NoNewPrivs:\s*1' "$of" || fail "$(grep -E '^(Seccomp|NoNewPrivs):' "$of" | xargs)" || return
    ! crun exec monitor /usr/bin/isotherm demo --out /etc/isotherm-demo 2>/dev/null || fail "its root is writable"
}
redis_collapses() {
    within 180 has_huge || { status | jq -c '{paused, waiting, collapsed, skipped, counters}' | cut -c -600; fail "redis-server has $(redis_huge_kb) kB of huge pages after 180 s: $(said_by monitor)"; } || return
    note "$(redis_huge_kb) kB of huge pages, $(status | jq .collapsed) collapses"
    [ "$(status | jq .collapsed)" -gt 0 ] || fail "redis-server has huge pages, but status counts no collapse"
}
server_starts() {
    start serve serve || return
    within 60 eval 'curl -fsS --max-time 5 http://127.0.0.1:4780/readyz >/dev/null 2>&1 || ! running serve'
    curl -fsS --max-time 5 http://127.0.0.1:4780/readyz >/dev/null || { said_by serve 20; fail "the server is not ready: $(said_by serve)"; }
}
scrape() { curl -sS --max-time 10 -H "Authorization: Bearer $token" http://127.0.0.1:4780/metrics >$state/metrics; }
# The service's cgroup is outside that of the container, whose own is all that it sees under /sys/fs/cgroup.
has_redis() { scrape && grep -q '^isotherm_memory_bytes{.*cgroup="/system.slice/redis-server.service".*} [1-9]' $state/metrics; }
metrics_are_scraped() {
    within 120 has_redis || {
        grep -m 5 redis $state/metrics
        fail "no isotherm_memory_bytes of redis-server's cgroup: $(scrape 2>&1 | tail -n 1)$(grep -m 1 ^isotherm_memory_bytes $state/metrics)"
    } || return
    note "$(grep -c ^isotherm_ $state/metrics) samples"
}
has_limit() {
    local limit
    limit=$(sed -n 's/^isotherm_cgroup_limit_bytes{.*cgroup="\/system.slice\/redis-server.service".*} //p' $state/metrics)
    [ "${limit:-none}" = 805306368 ] || fail "the limit of redis-server is 805306368, and the metrics have ${limit:-none}"
}
token_is_asked_for() {
    local code
    code=$(curl -sS -o /dev/null -w '%{http_code}' --max-time 10 http://127.0.0.1:4780/metrics)
    [ "$code" = 401 ] || fail "/metrics without the token answers $code"
}
ends() { # ends NAME: at SIGTERM, within the manifest's time
    local limit
    limit=$(jq .spec.terminationGracePeriodSeconds pod.json)
    crun kill "$1" TERM || fail "crun kill failed" || return
    within "$limit" eval "! running $1" || fail "it runs on after $limit s"
    crun delete --force "$1" 2>/dev/null
    true
}
pod() {
    systemctl set-property --runtime redis-server.service MemoryMax=768M
    check "redis is filled and read" load || return
    check "the monitor starts" monitor_starts || return
    check "it has the capabilities of the manifest, and no others" has_just_its_capabilities
    check "it is confined" is_confined
    check "the health check of the image passes" healthy
    check "hot memory of a service of the host is collapsed" redis_collapses
    if check "the server starts without capabilities" server_starts; then
        check "metrics are scraped, by cgroups of the host" metrics_are_scraped
        check "the limit of such a cgroup is seen" has_limit
        check "metrics ask for the token" token_is_asked_for
        check "the server ends when it is asked to" ends serve
    fi
    check "the monitor ends when it is asked to" ends monitor
    kill "$(cat $state/load)" 2>/dev/null
}

# --- doctor, with each capability of the manifest missing

doctor_passes() {
    # shellcheck disable=SC2086 # words
    once "$(only $capabilities)" /usr/bin/isotherm doctor --json >$state/doctor.json || fail "isotherm doctor failed: $(tail -n 1 $state/doctor.json)" || return
    note "source $(jq -r .source $state/doctor.json)"
    [ "$(jq -r .source $state/doctor.json)" = page-table ] || fail "$(jq -r .source_note $state/doctor.json)"
}
is_missed() { # is_missed CAPABILITY
    local rest less
    rest=$(grep -vx "$1" <<<"$capabilities")
    # shellcheck disable=SC2086 # words
    once "$(only $rest)" /usr/bin/isotherm doctor --json >$state/less.json
    less=$(jq -r --slurpfile all $state/doctor.json '. as $now | $all[0].findings[] | select(.state == "present") | .name as $n | $now.findings[]
        | select(.name == $n and .state != "present") | .name + ": " + .detail' $state/less.json)
    note "$(grep -w "CAP_$1" <<<"$less" | head -n 1 | cut -c -160)"
    grep -qw "CAP_$1" <<<"$less" || { echo "$less"; fail "without CAP_$1 doctor does not name it"; }
}
doctor() {
    local capability
    check "doctor passes with the capabilities of the manifest" doctor_passes || return
    for capability in $capabilities; do check "without CAP_$capability" is_missed "$capability"; done
}

# --- the seccomp profile, with a default action that permits and logs: what it would have denied

denies_nothing() {
    local denied
    dmesg --clear
    once '.linux.seccomp.defaultAction = "SCMP_ACT_LOG" | del(.linux.seccomp.defaultErrnoRet)' \
        /usr/bin/isotherm run -c /etc/isotherm/settings.toml -d 20s >/dev/null 2>$state/logged.log || { cat $state/logged.log; fail "the monitor failed: $(tail -n 1 $state/logged.log)"; } || return
    # But unshare (272), by which its sandbox tries for a mount namespace: that takes CAP_SYS_ADMIN, which it has not.
    denied=$(dmesg | grep -o 'type=1326 .*comm="isotherm.*' | grep -o 'comm="[^"]*"\|syscall=[0-9]*' | paste - - | grep -vw syscall=272 | sort | uniq -c | sort -rn)
    [ -z "$denied" ] || { echo "$denied"; fail "the profile denies: $(xargs <<<"$denied")"; }
}
# That the kernel logs at all: with an empty profile the same program's calls are logged.
logs_what_is_denied() {
    dmesg --clear
    once '.linux.seccomp = {defaultAction: "SCMP_ACT_LOG", architectures: ["SCMP_ARCH_X86_64"], syscalls: []}' /usr/bin/isotherm --version >/dev/null
    dmesg | grep -q 'type=1326 .*comm="isotherm' || fail "the kernel does not log what seccomp denies"
}
calls() {
    # Every line of the log, and not ten in five seconds.
    echo 0 >/proc/sys/kernel/printk_ratelimit
    check "denied calls are logged" logs_what_is_denied || return
    check "the seccomp profile denies nothing that the monitor calls" denies_nothing
}

# --- a pod with a pid namespace of its own

# Its first process, whose namespace the monitor shares (shareProcessNamespace).
start_own() {
    unshare --pid --fork --mount-proc --kill-child redis-server --port 6390 --save '' --daemonize no >$state/own.log 2>&1 &
    within 30 eval 'redis-cli -p 6390 ping 2>/dev/null | grep -q PONG' || fail "redis-server does not start: $(tail -n 1 $state/own.log)" || return
    own=$(pgrep -f 'redis-server \*:6390')
    timeout 100 redis-benchmark -p 6390 -q -t set -n 40000 -r 20000 -d 400 -P 64 >/dev/null
}
sees_its_pod() {
    local out=$state/own.json
    once ".linux.namespaces += [{type: \"pid\", path: \"/proc/$own/ns/pid\"}]" \
        /usr/bin/isotherm run --dry-run --all -d 8s --max-cpu 60 --max-slowdown 1000 --json >$out 2>$state/own.err || { cat $state/own.err; fail "the monitor failed: $(tail -n 1 $state/own.err)"; } || return
    note "$(jq -c '[.targets[] | {pid, name}]' $out | cut -c -160)"
    jq -e 'any(.targets[]; .pid == 1)' $out >/dev/null || fail "it does not watch pid 1 of the pod: $(jq -c .targets $out | cut -c -200)" || return
    jq -e 'all(.targets[]; .pid < 10)' $out >/dev/null || fail "it watches processes outside the pod: $(jq -c '[.targets[].pid]' $out | cut -c -200)"
}
namespace() {
    pod='.spec | .hostPID = true' # joined below, and not made
    check "a pod with a pid namespace of its own" start_own || return
    check "the monitor sees the processes of its pod, and no others" sees_its_pod
    kill "$own" 2>/dev/null
}

make_volumes
parts=("$@")
[ $# -gt 0 ] || parts=(image pod calls doctor namespace)
for part in "${parts[@]}"; do
    echo "== $part"
    "$part"
done
if [ "$failed" -gt 0 ]; then
    echo "--- what the containers said ---"
    tail -n 20 $state/monitor.log $state/serve.log 2>/dev/null
fi
echo "== end"
[ "$failed" -eq 0 ]
