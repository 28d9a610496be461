#!/usr/bin/env bash
# Runs a test in the guest of lab/debian.sh, and counts its checks. Sourced by lab/packages.sh and lab/image.sh, which set `kept`.

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
    [ "$failed" -eq 0 ]
}
