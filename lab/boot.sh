#!/usr/bin/env bash
# Boots one guest under QEMU and runs one program in it, as root.
#
# usage: boot.sh [OPTION]... -- PROGRAM [ARGUMENT]...
#        boot.sh [OPTION]... --shell
#
#   --kernel 6.1|6.12   which stock Debian kernel (6.12); fetched the first time
#   --nodes 1|2         NUMA nodes (1)
#   --cpus N            processors (2 a node)
#   --memory MIB        in all (2048 a node)
#   --levels 4|5        levels of page tables (4)
#   --side-cache MIB    a direct-mapped memory-side cache of this size before the first of two nodes, as the firmware tells (none)
#   --bare              the processor does not say that it is emulated, so that the kernel takes the spinlocks of real machines,
#                       with a queue, and not those for guests without help, which are tested and set
#   --in-turn           one processor after the other, by a count of instructions: slower, but the guest's clock stands still for those
#                       that wait, so that they start what they do at the same time when real ones would
#   --append "WORDS"    words for the kernel's command line, as in --append "numa_balancing=enable"
#   --bring FILE[=PLACE]  a file for the guest, with its libraries if it is a program; more than once. PLACE is where it
#                       will be; without, where it is here
#   --limit SECONDS     switched off after this time (300)
#   --log FILE          keep what the kernel says here (target/lab/boot.log)
#   --accel tcg|kvm     tcg, which is slow and works everywhere (LAB_ACCEL sets it too)
#
# examples: lab/boot.sh --kernel 6.12 --nodes 2 -- target/debug/isotherm doctor
#           lab/boot.sh --kernel 6.1 -- /bin/busybox cat /proc/vmstat
#           lab/boot.sh --bring target/debug/isotherm=/bin/isotherm --shell
#
# PROGRAM is a file of this machine, statically linked or not, or a script that starts with #!/bin/sh; it is brought along
# under its own path. Standard output and error come out as one, here as standard output; there is no input, but for --shell.
# /proc, /sys, debugfs, tracefs, cgroup2 and the BPF file system are mounted; huge pages are at madvise.
#
# exit status: that of PROGRAM; 124 the time was up; 125 the guest ended without saying how; 2 wrong usage
set -euo pipefail
lab=$(cd "$(dirname "$0")" && pwd)
target=$(realpath -m "$lab/../target/lab")

usage() {
    echo "boot: $1; lab/boot.sh --help has the options" >&2
    exit 2
}

kernel=6.12 nodes=1 cpus='' memory='' levels=4 side_cache='' bare='' in_turn='' append='' limit=300 accel=${LAB_ACCEL:-tcg} shell='' log=$target/boot.log
bring=()
while [ $# -gt 0 ]; do
    case $1 in
    --kernel | --nodes | --cpus | --memory | --levels | --side-cache | --append | --limit | --accel | --log | --bring)
        [ $# -ge 2 ] || usage "$1 takes a value"
        option=${1#--}
        if [ "$1" = --bring ]; then bring+=("$2"); else declare "${option//-/_}=$2"; fi
        shift 2
        ;;
    --bare) bare=yes && shift ;;
    --in-turn) in_turn=yes && shift ;;
    --shell) shell=yes && shift ;;
    --help | -h) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    --) shift && break ;;
    *) usage "unknown option $1" ;;
    esac
done
[ -n "$shell" ] || [ $# -gt 0 ] || usage "no program was given"
[[ $nodes = [12] ]] || usage "--nodes is 1 or 2, not $nodes"
[[ $levels = [45] ]] || usage "--levels is 4 or 5, not $levels"
[ -z "$side_cache" ] || [ "$nodes" = 2 ] || usage "--side-cache takes --nodes 2"
cpus=${cpus:-$((2 * nodes))}
memory=${memory:-$((2048 * nodes))}
command -v qemu-system-x86_64 >/dev/null || {
    echo "boot: qemu-system-x86_64 was not found: run scripts/setup.sh lab" >&2
    exit 1
}

at=$("$lab/kernels.sh" "$kernel")
image=$(ls "$at"/boot/vmlinuz-*)
work=$(mktemp -d)
guest=''
cleanup() {
    # By its own id: other guests may be running.
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
    # %q writes what the guest's shell reads back as it was.
    { echo '#!/bin/sh' && printf 'exec' && printf ' %q' "$program" "$@" && echo; } >"$work/job"
    chmod +x "$work/job"
    bring+=("$work/job=/lab/job" "$program")
fi
"$lab/initramfs.sh" "$work/initramfs" "${bring[@]}"

model=max
[ "$levels" = 5 ] || model+=,la57=off
[ -z "$bare" ] || model+=,hypervisor=off
[ -z "$in_turn" ] || [ "$accel" = tcg ] || usage "--in-turn takes --accel tcg"
machine=(-machine "q35${side_cache:+,hmat=on}" -accel "$accel${in_turn:+,thread=single}" -cpu "$model" -m "${memory}M" -nodefaults -display none -no-reboot)
# 2 ns an instruction: processors as fast as real ones, by a clock that is slower than the real one while they are busy.
[ -z "$in_turn" ] || machine+=(-icount shift=1,sleep=on)
if [ "$nodes" = 2 ]; then
    half=$((memory / 2)) last=$((cpus / 2 - 1))
    machine+=(-smp "$cpus,sockets=2")
    machine+=(-object "memory-backend-ram,size=${half}M,id=m0" -object "memory-backend-ram,size=${half}M,id=m1")
    # With a table of caches each node has to say who reaches it best.
    machine+=(-numa "node,nodeid=0,memdev=m0,cpus=0-$last")
    machine+=(-numa "node,nodeid=1,memdev=m1,cpus=$((last + 1))-$((cpus - 1))${side_cache:+,initiator=1}")
else
    machine+=(-smp "$cpus")
fi
if [ -n "$side_cache" ]; then
    # QEMU takes a cache only for a node whose latency and bandwidth it was told. It models none of the three: the table is all.
    memory_of_first=initiator=0,target=0,hierarchy=memory
    machine+=(-numa "hmat-lb,$memory_of_first,data-type=access-latency,latency=5")
    machine+=(-numa "hmat-lb,$memory_of_first,data-type=access-bandwidth,bandwidth=200M")
    machine+=(-numa "hmat-cache,node-id=0,size=${side_cache}M,level=1,associativity=direct,policy=write-back,line=64")
fi
# tsc=reliable: what an emulated processor counts is right, and the clock that the kernel would fall back to is very slow here.
words="console=ttyS0 panic=-1 oops=panic loglevel=6 mitigations=off tsc=reliable${in_turn:+ lab.in_turn=1} $append"
command=(qemu-system-x86_64 "${machine[@]}" -kernel "$image" -initrd "$work/initramfs" -append "$words")
mkdir -p "$(dirname "$log")"
: >"$log"

if [ -n "$shell" ]; then
    # In the foreground, for it owns the terminal. Ctrl-a x ends it.
    "${command[@]}" -serial "file:$log" -serial mon:stdio || true
    exit 0
fi

mkfifo "$work/out"
timeout --kill-after=5 "$limit" "${command[@]}" -serial "file:$log" -serial stdio </dev/null >"$work/out" 2>"$work/qemu.err" &
guest=$!
# Everything is passed on as it comes, but for the last words, which may follow a line that was never ended.
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
        echo "boot: the guest was switched off after $limit s; the end of $log is above; --limit gives it longer"
    else
        echo "boot: the guest ended and never said how; the end of $log is above"
    fi
} >&2
[ "$end" -ne 124 ] || exit 124
exit 125
