#!/usr/bin/env bash
# What lab/packages.sh and lab/image.sh share: their options, and a test that runs in the guest of lab/debian.sh. Sourced by them.
kept=$PWD/target/lab
mkdir -p "$kept"

fail() { # fail MESSAGE [STATUS]
    echo "$(basename "$0" .sh): $1" >&2
    exit "${2:-1}"
}

# Sets variables of the names of the options. What comes after them is in `parts`.
take_options() { # take_options "NAME..." ARGUMENT...
    local names=" $1 " name
    shift
    while [ $# -gt 0 ]; do
        name=${1#--}
        case $1 in
        --help | -h) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
        -*)
            [[ $1 = --* && $names = *" $name "* ]] || fail "unknown option $1; lab/$(basename "$0") --help lists the options" 2
            [ $# -ge 2 ] || fail "$1 takes a value" 2
            declare -g "$name=$2"
            shift 2
            ;;
        *) break ;;
        esac
    done
    # shellcheck disable=SC2034 # read by those who source this
    parts=("$@")
}

# The test's output goes to standard output and to a log. Fails if a check failed, the test ended early, or the guest's kernel logged an error.
in_guest() { # in_guest NAME KERNEL OPTIONS OF lab/debian.sh... -- SCRIPT [ARGUMENT]...
    local name=$1 kernel=$2 log=$kept/$1.log began=$SECONDS ok failed said
    shift 2
    lab/debian.sh --kernel "$kernel" --cpus 2 --limit 2400 --log "$kept/$name.kernel.log" --bring lab/debian/checks.sh "$@" 2>&1 | tee "$log" || true
    ok=$(grep -c '^  ok ' "$log") || true
    failed=$(grep -c '^  FAILED ' "$log") || true
    grep -qx '== end' "$log" || {
        failed=$((failed + 1))
        echo "  FAILED   the guest ended before all checks were done"
    }
    # A check may pass although the kernel has oopsed.
    said=$(grep -E 'BUG:|WARNING:|Oops|general protection fault|Kernel panic' "$kept/$name.kernel.log") && {
        failed=$((failed + 1))
        echo "  FAILED   the kernel logged errors:"
        head -n 5 <<<"$said" | sed 's/^/    /'
    }
    echo "guest $name: $ok ok, $failed failed in $((SECONDS - began)) s; the whole output is in $log"
    # A part that is misspelt checks nothing.
    [ "$failed" -eq 0 ] && [ "$ok" -gt 0 ]
}
