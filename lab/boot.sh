#!/usr/bin/env bash
# Boots one guest under QEMU and runs one program in it, as root.
#
# usage: boot.sh [OPTION]... -- PROGRAM [ARGUMENT]...
#        boot.sh [OPTION]... --shell
#
#   --kernel 6.1|6.12   which stock Debian kernel (6.12); fetched the first time
#   --nodes 1|2         NUMA nodes (1)
#   --cpus N            processors (2 per node)
#   --memory MIB        of the whole guest (2048 per node)
#   --levels 4|5        page-table levels (4)
#   --side-cache MIB    a direct-mapped memory-side cache of this size before the first of two nodes, reported by the firmware (none)
#   --slow MIB          a second node of this size without processors, which the firmware reports as slower: a memory tier of its own (none)
#   --swap MIB          swap of this size, compressed in memory (zram) (none)
#   --root IMAGE        boots systemd from this ext4 image (lab/debian.sh makes one) and runs PROGRAM as its unit. The image stays as it
#                       is. Libraries are the image's own; what --bring names under /lab is at /run/lab
#   --bare              the processor does not report that it is emulated, so that the kernel uses the spinlocks of real machines,
#                       with a queue, and not the test-and-set locks for guests without paravirtualization
#   --one-thread        executes all processors in one thread, in turn. Without it, kernels that patch code crash or hang now and then:
#                       a processor keeps executing the breakpoint that stood there meanwhile
#   --in-turn           the same, by instruction count: slower, but the guest's clock stands still for those that wait, so that they
#                       start work at the same time if real ones would
#   --skip-idle         with --in-turn: the clock jumps over the time in which all processors are idle. A guest that mostly sleeps is
#                       then faster than real time, and CPU time is the same in each run
#   --append "WORDS"    parameters for the kernel's command line, as in --append "numa_balancing=enable"
#   --bring FILE[=PLACE]  a file for the guest, with its libraries if it is a program; may be repeated. PLACE is its path
#                       in the guest (default: its path here)
#   --limit SECONDS     switch the guest off after this time (300)
#   --log FILE          write the kernel's messages to this file (target/lab/boot.log)
#   --accel tcg|kvm     tcg, which is slow and works everywhere (LAB_ACCEL sets it too)
#
# examples: lab/boot.sh --kernel 6.12 --nodes 2 -- target/debug/isotherm doctor
#           lab/boot.sh --kernel 6.1 -- /bin/busybox cat /proc/vmstat
#           lab/boot.sh --bring target/debug/isotherm=/bin/isotherm --shell
#
# PROGRAM is a file of this machine, statically linked or not, or a script that starts with #!/bin/sh; it is packed
# under its own path. Its standard output and error are merged into our standard output. There is no input, except with --shell.
# /proc, /sys, debugfs, tracefs, cgroup2 and the BPF file system are mounted; huge pages are set to madvise.
#
# exit status: that of PROGRAM; 124 time limit reached; 125 the guest ended without an exit status; 2 wrong usage
set -euo pipefail
lab=$(cd "$(dirname "$0")" && pwd)
target=$(realpath -m "$lab/../target/lab")

usage() {
    echo "boot: $1; lab/boot.sh --help lists the options" >&2
    exit 2
}

kernel=6.12 nodes=1 cpus='' memory='' levels=4 side_cache='' slow='' swap='' root='' bare='' one_thread='' in_turn='' skip_idle='' append='' limit=300 accel=${LAB_ACCEL:-tcg} shell='' log=$target/boot.log
bring=()
while [ $# -gt 0 ]; do
    case $1 in
    --kernel | --nodes | --cpus | --memory | --levels | --side-cache | --slow | --swap | --root | --append | --limit | --accel | --log | --bring)
        [ $# -ge 2 ] || usage "$1 takes a value"
        option=${1#--}
        if [ "$1" = --bring ]; then bring+=("$2"); else declare "${option//-/_}=$2"; fi
        shift 2
        ;;
    --bare) bare=yes && shift ;;
    --one-thread) one_thread=yes && shift ;;
    --in-turn) in_turn=yes one_thread=yes && shift ;;
    --skip-idle) skip_idle=yes && shift ;;
    --shell) shell=yes && shift ;;
    --help | -h) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    --) shift && break ;;
    *) usage "unknown option $1" ;;
    esac
done
[ -n "$shell" ] || [ $# -gt 0 ] || usage "no program was given"
[[ $nodes = [12] ]] || usage "--nodes is 1 or 2, not $nodes"
[[ $levels = [45] ]] || usage "--levels is 4 or 5, not $levels"
[ -z "$slow" ] || [ "$nodes" = 1 ] || usage "--slow takes --nodes 1"
[ -z "$side_cache" ] || [ "$nodes" = 2 ] || usage "--side-cache takes --nodes 2"
[ -z "$root" ] || [ -f "$root" ] || usage "there is no image $root"
cpus=${cpus:-$((2 * nodes))}
memory=${memory:-$((2048 * nodes))}
command -v qemu-system-x86_64 >/dev/null || {
    echo "boot: qemu-system-x86_64 was not found: run scripts/setup.sh lab" >&2
    exit 1
}

at=$("$lab/kernels.sh" "$kernel${root:+-disk}")
image=$(ls "$at"/boot/vmlinuz-*)
work=$(mktemp -d)
guest=''
cleanup() {
    # By id, because other guests may be running.
    [ -z "$guest" ] || kill "$guest" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

if [ -n "$shell" ]; then
    : >"$work/shell"
    bring+=("$work/shell=/lab/shell")
else
    program=$(command -v -- "$1") || {
        echo "boot: there is no program $1" >&2
        exit 2
    }
    program=$(realpath "$program")
    shift
    # %q quotes each word so that the guest's shell reads it unchanged.
    { echo '#!/bin/sh' && printf 'exec' && printf ' %q' "$program" "$@" && echo; } >"$work/job"
    chmod +x "$work/job"
    bring+=("$work/job=/lab/job" "$program")
fi
if [ -n "$swap$root" ]; then
    mkdir "$work/modules"
    folders=("$at/lib/modules")
    # Those of swap are kept with the kernel that has no disk.
    [ -z "$root" ] || [ -z "$swap" ] || folders+=("$("$lab/kernels.sh" "$kernel")/lib/modules")
    while IFS= read -r module; do
        name=$(basename "${module%.ko*}").ko
        # As they are, or compressed.
        case $module in
        *.xz) xz -dc "$module" >"$work/modules/$name" ;;
        *) cp "$module" "$work/modules/$name" ;;
        esac
        bring+=("$work/modules/$name=/lab/modules/$name")
    done < <(find "${folders[@]}" -name '*.ko*')
    [ -z "$swap" ] || append+=" lab.swap=$swap"
fi
if [ -n "$root" ]; then
    bring+=("$lab/debian/job=/lab/start" "$lab/debian/lab.service=/lab/lab.service")
    # No login on a serial line: the second is the program's.
    append+=" lab.root=/dev/vda systemd.wants=lab.service systemd.mask=serial-getty@ttyS0.service systemd.show_status=1 TERM=dumb"
fi
"$lab/initramfs.sh" "$work/initramfs" "${bring[@]}"

model=max
[ "$levels" = 5 ] || model+=,la57=off
[ -z "$bare" ] || model+=,hypervisor=off
[ -z "$in_turn" ] || [ "$accel" = tcg ] || usage "--in-turn takes --accel tcg"
[ "$accel" = tcg ] || one_thread='' # Real processors do not need it.
machine=(-machine "q35${side_cache:+,hmat=on}${slow:+,hmat=on}" -accel "$accel${one_thread:+,thread=single}" -cpu "$model" -m "${memory}M" -nodefaults -display none -no-reboot)
# What is written goes to a temporary file, which QEMU has unlinked.
[ -z "$root" ] || machine+=(-drive "file=$root,if=virtio,format=raw,snapshot=on,cache=unsafe")
# 2 ns per instruction: by the guest's clock, processors are as fast as real ones. That clock is slower than real time while they are busy.
[ -z "$in_turn" ] || machine+=(-icount "shift=1,sleep=$([ -n "$skip_idle" ] && echo off || echo on)")
if [ "$nodes" = 2 ]; then
    half=$((memory / 2)) last=$((cpus / 2 - 1))
    machine+=(-smp "$cpus,sockets=2")
    machine+=(-object "memory-backend-ram,size=${half}M,id=m0" -object "memory-backend-ram,size=${half}M,id=m1")
    # With a table of caches, each node must name the node whose processors reach it best.
    machine+=(-numa "node,nodeid=0,memdev=m0,cpus=0-$last")
    machine+=(-numa "node,nodeid=1,memdev=m1,cpus=$((last + 1))-$((cpus - 1))${side_cache:+,initiator=1}")
elif [ -n "$slow" ]; then
    machine+=(-smp "$cpus" -object "memory-backend-ram,size=$((memory - slow))M,id=m0" -object "memory-backend-ram,size=${slow}M,id=m1")
    machine+=(-numa "node,nodeid=0,memdev=m0,cpus=0-$((cpus - 1))" -numa node,nodeid=1,memdev=m1,initiator=0 -numa dist,src=0,dst=1,val=30)
    for figures in 0,10,10G 1,300,1G; do
        IFS=, read -r node latency bandwidth <<<"$figures"
        machine+=(-numa "hmat-lb,initiator=0,target=$node,hierarchy=memory,data-type=access-latency,latency=$latency")
        machine+=(-numa "hmat-lb,initiator=0,target=$node,hierarchy=memory,data-type=access-bandwidth,bandwidth=$bandwidth")
    done
else
    machine+=(-smp "$cpus")
fi
if [ -n "$side_cache" ]; then
    # QEMU accepts a cache only for a node with a given latency and bandwidth. It models none of the three and only writes the table.
    memory_of_first=initiator=0,target=0,hierarchy=memory
    machine+=(-numa "hmat-lb,$memory_of_first,data-type=access-latency,latency=5")
    machine+=(-numa "hmat-lb,$memory_of_first,data-type=access-bandwidth,bandwidth=200M")
    machine+=(-numa "hmat-cache,node-id=0,size=${side_cache}M,level=1,associativity=direct,policy=write-back,line=64")
fi
# tsc=reliable: the TSC of an emulated processor is correct, and the clock that the kernel would fall back to is very slow here.
words="console=ttyS0 panic=-1 oops=panic loglevel=6 mitigations=off tsc=reliable${one_thread:+ lab.one_thread=1} $append"
command=(qemu-system-x86_64 "${machine[@]}" -kernel "$image" -initrd "$work/initramfs" -append "$words")
mkdir -p "$(dirname "$log")"
: >"$log"

if [ -n "$shell" ]; then
    # In the foreground, because it owns the terminal. Ctrl-a x ends it.
    "${command[@]}" -serial "file:$log" -serial mon:stdio || true
    exit 0
fi

mkfifo "$work/out"
timeout --kill-after=5 "$limit" "${command[@]}" -serial "file:$log" -serial stdio </dev/null >"$work/out" 2>"$work/qemu.err" &
guest=$!
# Prints all output as it comes, except for the exit status, which may follow an unfinished line.
while IFS= read -r line || [ -n "$line" ]; do
    if [[ $line =~ ^(.*)"lab: exit status "([0-9]+)$ ]]; then
        echo "${BASH_REMATCH[2]}" >"$work/status"
        line=${BASH_REMATCH[1]}
        [ -n "$line" ] || continue
    fi
    printf '%s\n' "$line"
done <"$work/out"
wait "$guest" && end=0 || end=$?
guest=''
[ ! -s "$work/status" ] || exit "$(cat "$work/status")"
{
    cat "$work/qemu.err"
    tail -n 15 "$log"
    if [ "$end" -eq 124 ]; then
        echo "boot: the guest was switched off after $limit s; the end of $log is above; raise --limit"
    else
        echo "boot: the guest ended without an exit status; the end of $log is above"
    fi
} >&2
[ "$end" -ne 124 ] || exit 124
exit 125
