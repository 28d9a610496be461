#!/usr/bin/env bash
# Runs one binary in root trees of Debian 11, 12 and 13, by chroot, and prints what works there and what refusals say.
# usage: roots.sh [--program FILE] [ROOT...]
#
#   --program FILE   the program (that of the package in target/dist, else target/release/isotherm)
#   ROOT             bullseye, bookworm, trixie (all three), or the folder of an unpacked root tree of any distribution
#
# Only the C library and the tools are those of the root. The kernel is this machine's: for other kernels there is lab/boot.sh.
# Root trees are made once, by mmdebstrap, and kept in target/lab/roots. What is mounted is seen by the program alone.
#
# exit status: 0 every check was ok; 1 a check failed; 2 wrong usage
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
store=$PWD/target/lab/roots
recording=$PWD/crates/isotherm-record/tests/fixtures/v1/finished

fail() {
    echo "roots: $1" >&2
    exit "${2:-1}"
}

program='' wanted=()
while [ $# -gt 0 ]; do
    case $1 in
    --program) program=${2:?"roots: --program takes a value"} && shift 2 ;;
    --help | -h) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    -*) fail "unknown option $1; lab/roots.sh --help lists the options" 2 ;;
    *) wanted+=("$1") && shift ;;
    esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=(bullseye bookworm trixie)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "$program" ]; then
    for file in target/dist/isotherm_*_amd64.deb; do
        [ ! -f "$file" ] || dpkg-deb --fsys-tarfile "$file" | tar -x -C "$work" ./usr/bin/isotherm
    done
    program=$work/usr/bin/isotherm
    [ -f "$program" ] || program=target/release/isotherm
fi
[ -x "$program" ] || fail "there is no program $program: run make dist or make build, or name one with --program"
program=$(realpath "$program")

# A program that is linked to libelf declares that its package depends on it.
libraries=()
! objdump -p "$program" 2>/dev/null | grep -q 'NEEDED.*libelf' || libraries=(libelf1)

# In name spaces in which we are root and mounts are ours, or, as root, the latter.
apart() {
    if [ "$(id -u)" -eq 0 ]; then unshare --mount "$@"; else unshare --user --map-auto --map-root-user --mount "$@"; fi
}

tree_of() { # tree_of ROOT: prints its folder
    local tar
    if [ -d "$1" ]; then
        realpath "$1"
        return
    fi
    tar=$(lab/debian/root.sh "$1" "${libraries[@]}")
    if [ ! -d "${tar%.tar}" ]; then
        # shellcheck disable=SC2016 # of the inner shell
        apart bash -euc 'mkdir -p "$2.part/dev" && tar -x --numeric-owner -f "$1" -C "$2.part" && mv "$2.part" "$2"' tree "$tar" "${tar%.tar}" >&2
    fi
    echo "${tar%.tar}"
}

within() { # within TREE COMMAND...: runs it there. /mnt is $work/mnt, in which the program and a recording are
    local tree=$1
    shift
    # shellcheck disable=SC2016 # of the inner shell
    apart timeout --kill-after=5 120 bash -euc '
        tree=$1 work=$2 && shift 2
        mount --bind "$work" "$tree/mnt"
        mount --rbind /proc "$tree/proc" && mount --rbind /dev "$tree/dev"
        # Only read: nothing here has a reason to write there.
        mount --rbind /sys "$tree/sys" && mount -o remount,bind,ro "$tree/sys"
        exec chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C "$@"' within "$tree" "$work/mnt" "$@"
}

failed=0 ok=0
check() { # check NAME COMMAND...: a function that prints a note to descriptor 3
    local name=$1 began=$SECONDS note
    shift
    if "$@" >"$work/out" 2>&1 3>"$work/note"; then
        ok=$((ok + 1)) note=$(<"$work/note")
        echo "  ok       $name ($((SECONDS - began)) s)${note:+: $note}"
    else
        failed=$((failed + 1))
        echo "  FAILED   $name ($((SECONDS - began)) s): $(tail -n 1 "$work/out")"
        tail -n 12 "$work/out" | sed 's/^/    /'
        return 1
    fi
}

starts() { # starts TREE
    within "$1" /mnt/isotherm --version | tee /dev/fd/3
}
doctor() {
    within "$1" /mnt/isotherm doctor >"$work/doctor" || return
    grep -m 1 '^source:' "$work/doctor" | cut -c -150 >&3
}
# The same file as outside of the root: its tables and numbers do not depend on the C library.
reports() {
    within "$1" /mnt/isotherm report histogram --json /mnt/recording >"$work/here" || return
    "$program" report histogram --json "$recording" >"$work/there"
    cmp "$work/here" "$work/there" || return
    echo "$(wc -c <"$work/here") bytes, as outside" >&3
}
converts() {
    within "$1" /mnt/isotherm convert --overwrite /mnt/recording /mnt/out.json || return
    "$program" convert --overwrite "$recording" "$work/there.json" || return
    cmp "$work/mnt/out.json" "$work/there.json" || return
    echo "$(wc -c <"$work/there.json") bytes, as outside" >&3
}
# A child that goes over its 32 MiB again and again.
records() { # records TREE SOURCE
    local hot
    # shellcheck disable=SC2016 # of perl
    within "$1" /mnt/isotherm record --source "$2" --overwrite -o /mnt/new.isotherm -d 6s -- perl -e '$x = "x" x 33554432; $x =~ tr/x/x/ while 1' || return
    within "$1" /mnt/isotherm report histogram --json /mnt/new.isotherm >"$work/new.json" || return
    hot=$(jq '[.report.groups[0].temperature[] | select(.from_ns < 1e9) | .bytes] | add // 0' "$work/new.json")
    echo "$((hot >> 20)) MiB accessed every second, by a child that goes over 32" >&3
    [ "$hot" -gt $((16 << 20)) ] || {
        echo "only $hot bytes are hot, of a child that goes over 32 MiB all the time"
        return 1
    }
}

mkdir -p "$work/mnt" "$store"
cp -L "$program" "$work/mnt/isotherm"
cp -r "$recording" "$work/mnt/recording"
echo "program: $(file -bL "$program" | cut -d, -f1-4); newest symbol of the C library: $(objdump -T "$program" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)"
for root in "${wanted[@]}"; do
    tree=$(tree_of "$root")
    echo "root $root: $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$tree/etc/os-release"), $(within "$tree" ldd --version 2>/dev/null | head -n 1), kernel $(uname -r)"
    check "$root: it starts" starts "$tree" || continue
    check "$root: doctor" doctor "$tree" || true
    check "$root: report of a recording of format 1" reports "$tree" || true
    check "$root: convert for damo" converts "$tree" || true
    check "$root: record --source referenced" records "$tree" referenced || true
    check "$root: record --source auto" records "$tree" auto || true
done
echo "roots: $ok ok, $failed failed"
[ "$failed" -eq 0 ]
