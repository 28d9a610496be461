#!/usr/bin/env bash
# Runs our tests in every guest of the lab, and prints the result of each test.
# usage: run.sh [GUEST...] [-- BINARY...]   guests and test binaries are listed below (default: every guest, each with its binaries)
#        run.sh --quick     one short boot (`make lab-quick`); prints "skipped: needs ..." if it is not possible
#        run.sh --bench NAME [ARGUMENT...]   one of the benches that configure the kernel; without arguments its result is written to
#                           bench/results/<date>/NAME.txt
#
# The tests are those that `cargo test` runs here: the same binaries, with their libraries, in a guest. lab/left-out lists the tests
# that are skipped, and why. The output of a guest is kept in target/lab/GUEST.log, and its kernel's messages in
# target/lab/GUEST.kernel.log.
#
# exit status: 0 every test was ok or skipped; 1 a test failed, or a guest ended early
set -euo pipefail
cd "$(dirname "$0")/.."
kept=target/lab
mkdir -p "$kept"

# Guests, by name. 6.1 and 6.12 are the oldest and the newest kernel of Debian 12, with one node and two, and with page tables of
# five levels and of four. They have hugetlb pages for the tests that need some. The firmware of 6.12-cache reports a memory-side
# cache. 6.12-cpus has eight processors and does not detect that it is a guest. 6.12-swap has swap (zram), 6.12-tiers a second node
# without processors, which is slower by its firmware.
declare -A guests=(
    [6.1]="--kernel 6.1 --nodes 1 --levels 5 --memory 3072 --one-thread --append hugepages=8"
    [6.12]="--kernel 6.12 --nodes 2 --cpus 2 --levels 4 --memory 4096 --append hugepages=8"
    [6.12-cache]="--kernel 6.12 --nodes 2 --cpus 2 --memory 2048 --side-cache 256 --append hugepages=8"
    [6.12-cpus]="--kernel 6.12 --nodes 1 --cpus 8 --memory 2048 --bare --in-turn"
    [6.12-swap]="--kernel 6.12 --nodes 1 --cpus 2 --memory 1536 --swap 512 --limit 900"
    [6.12-tiers]="--kernel 6.12 --nodes 1 --cpus 2 --memory 1536 --slow 512 --limit 600"
)
order=(6.1 6.12 6.12-cache 6.12-cpus 6.12-swap 6.12-tiers)
# Test binaries that depend on the kernel, by cargo's file names. The others do not: isotherm_monitor uses a virtual clock, top needs a
# terminal, and damo and servers need programs that a guest lacks.
binaries=(isotherm_sys isotherm_host isotherm_bpf isotherm_sources confined sandbox rings contract damon mglru perf live processes collapse split cgroup_limits refusals cli events zone_lock stream)
# Guests with a single purpose run only the binaries that depend on it, and no demo.
declare -A binaries_of=(
    # Memory-side caches, and frames placed for them. Add test binaries about either here.
    [6.12-cache]="memory_side_cache isotherm_sys isotherm_host placement pool pcp"
    # vmstat_update on several processors. Its tests need nothing else that the other guests lack.
    [6.12-cpus]="isotherm_bpf zone_lock"
    # Memory that leaves for swap, and comes back; huge pages that are split for it.
    [6.12-swap]="reclaim split clear_in_shortage"
    # Pages that move between fast and slow memory.
    [6.12-tiers]="migrate isotherm_sys"
)
# Of cli, the tests that ask the kernel something that other binaries do not. The rest is about options, files and exit codes, or about
# programs that run for seconds, which end here before their first access check. All of cli takes six minutes under emulation.
declare -A only=( # by BINARY, or by GUEST/BINARY
    [cli]="a_kernel_thread_has_nothing_to_watch a_zombie_has_ended the_doctor_has_an_opinion
        a_cgroup_is_watched_by_any_of_its_names_and_those_who_join_later_too"
    [6.12-cpus/isotherm_bpf]="vmstat::"
    [6.12-cache/isotherm_sys]="frames::"
    [6.12-tiers/isotherm_sys]="move_pages:: tiers:: room::"
    [6.12-cache/isotherm_host]="cache_probe:: this_machine_can_be_read"
    [6.12-cache/placement]="the_machines_own_cache_is_used_for_the_frames_behind_it a_known_layout_is_told_as_it_is"
)
# Programs that tests call. A program that this machine lacks is missing in the guest too, and its tests report that.
tools=(bash setpriv script unshare)

build() { # build PACKAGE...: prints the paths of the test binaries
    # The same command and features as in `make test`, so that nothing is built twice.
    cargo test --locked --no-run "$@" 2>&1 | tee "$kept/build.log" | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
    [ "${PIPESTATUS[0]}" -eq 0 ] || {
        grep -A20 -E '^error' "$kept/build.log" >&2
        echo "lab: the tests do not build; the whole output is in $kept/build.log" >&2
        return 1
    }
}

# python3 with exactly the modules that tests import, a tenth of the package. They are looked up, as a list of them would be old one day.
python() {
    local python=/usr/bin/python3 modules
    [ -x "$python" ] || return 0
    modules=$(grep -rhoE '(^ *|")import [a-z_, ]+$' crates/*/tests --include='*.rs' | sed 's/.*import //' | tr -d ' ' | tr ',' '\n' | sort -u | paste -sd,)
    echo "$python"
    "$python" -c "import $modules"'
import sys
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None): print(module.__file__)'
}

left_out() { # left_out GUEST BINARY: prints skipped tests and reasons, separated by a tab
    awk -v guest="$1" -v binary="$2" '!/^#/ && NF >= 4 && ($1 == guest || $1 == "*") && $2 == binary {
        test = $3; $1 = $2 = $3 = ""; sub(/^ +/, ""); print test "\t" $0
    }' lab/left-out
}

# Reads the output of a guest as it comes, and prints one line per test. Counts in `ok`, `failed` and `skipped`.
follow() {
    local line binary='' test='' why='' began=$SECONDS result took before=0
    ok=0 failed=0 skipped=0 ended=''
    while IFS= read -r line; do
        case $line in
        '== end') ended=yes && continue ;;
        '== exit status '*)
            # A test that aborts ends its binary, and a binary with its own main may end before any test.
            if [ "$line" != '== exit status 0' ] && [ "$failed" -eq "$before" ]; then
                failed=$((failed + 1))
                echo "  FAILED   $binary${test:+ $test}: ended with${line#==}"
            fi
            test='' && continue
            ;;
        '== '*) binary=${line#== } && began=$SECONDS && before=$failed && continue ;;
        'skipped: needs '*)
            # The whole binary is skipped.
            if [ -z "$test" ]; then
                skipped=$((skipped + 1))
                echo "  $line: $binary"
                continue
            fi
            ;;
        esac
        case $line in
        'test '*' ... '*)
            test=${line#test } && test=${test%% ... *}
            why='' line=${line#*' ... '}
            ;;
        esac
        [ -n "$test" ] || continue
        # The result is on the test's own line if the test printed nothing, and after its output otherwise.
        result=''
        case $line in
        *'skipped: needs '*) why=${line#*skipped: needs } ;;
        ok | *[!a-zA-Z]ok) result=ok ;;
        FAILED) result=FAILED ;;
        ignored*) test='' ;;
        esac
        [ -n "$result" ] || continue
        # Time since the last result, because the start of a test's line only arrives with its end.
        took=$((SECONDS - began)) began=$SECONDS
        if [ "$result" = FAILED ]; then
            failed=$((failed + 1))
            echo "  FAILED   $binary $test (${took} s)"
        elif [ -n "$why" ]; then
            skipped=$((skipped + 1))
            echo "  skipped: needs $why: $binary $test"
        else
            ok=$((ok + 1))
            echo "  ok       $binary $test (${took} s)"
        fi
        test=''
    done
    if [ -n "$test" ]; then
        failed=$((failed + 1))
        echo "  FAILED   $binary $test: the guest ended while it ran"
    elif [ -z "$ended" ]; then
        failed=$((failed + 1))
        echo "  FAILED   the guest ended before all tests had run"
    fi
}

# Prints the kernel's complaints. A test may pass although the kernel has oopsed.
complaints() {
    grep -E 'BUG:|WARNING:|Oops|general protection fault|Kernel panic' "$1" || true
}

run_guest() { # run_guest NAME LIMIT ITEM...: items are those of lab/suite.sh
    local name=$1 limit=$2 item file log=$kept/$1.log began=$SECONDS bring=() ok failed skipped ended
    shift 2
    for file in "${extra[@]}"; do bring+=(--bring "$file"); done
    for item in "$@"; do
        file=${item#*=}
        bring+=(--bring "${file%%=*}")
    done
    echo "guest $name (${guests[$name]})"
    # shellcheck disable=SC2086 # words
    follow < <(lab/boot.sh ${guests[$name]} --limit "$limit" --log "$kept/$name.kernel.log" "${bring[@]}" -- lab/suite.sh "$@" 2>&1 | tee "$log")
    local said
    said=$(complaints "$kept/$name.kernel.log")
    if [ -n "$said" ]; then
        failed=$((failed + 1))
        echo "  FAILED   the kernel logged errors:"
        head -n 5 <<<"$said" | sed 's/^/    /'
    fi
    if [ "$failed" -gt 0 ]; then
        echo "--- failures of guest $name ---"
        awk '/^---- .* stdout ----$|panicked at/ {on = 1} /^failures:$|^== |^test / {on = 0} on' "$log" | cut -c -400 | head -n 150
        [ -n "$ended" ] || tail -n 20 "$log"
    fi
    echo "guest $name: $ok ok, $failed failed, $skipped skipped in $((SECONDS - began)) s; the whole output is in $log"
    [ "$failed" -eq 0 ]
}

# Some emulated machines crash when the kernel patches code that another processor executes (see suite.sh). That is not our fault. They
# crash where page faults are counted: in handle_mm_fault on 6.1 and in do_user_addr_fault on 6.12, where the kernel finds an unknown
# breakpoint. Such a guest does not reach its end.
crashed_by_emulator() { # crashed_by_emulator NAME: whether the last boot of that guest crashed so
    # Not if a test had failed before: a failed test is not run again.
    ! grep -qx '== end' "$kept/$1.log" && ! grep -q 'FAILED' "$kept/$1.log" && grep -qE 'RIP: .*(handle_mm_fault|do_user_addr_fault)' "$kept/$1.kernel.log"
}

# Boots a guest up to two more times after that crash, and after nothing else. About one boot in five ends with it. Logs of the last
# crash are kept next to those of the boot that counts.
run_guest_past_crashes() { # arguments as for run_guest
    local log again
    run_guest "$@" && return
    for again in 1 2; do
        crashed_by_emulator "$1" || return 1
        for log in "$1.log" "$1.kernel.log"; do cp "$kept/$log" "$kept/crashed-$log"; done
        echo "--- guest $1 again ($again of 2): the emulator has crashed its kernel where page faults are counted ($kept/crashed-$1.kernel.log) ---"
        run_guest "$@" && return
    done
    return 1
}

quick() {
    local paths sys host bpf contract isotherm
    command -v qemu-system-x86_64 >/dev/null || {
        echo "skipped: needs qemu-system-x86_64 (lab boot)"
        return 0
    }
    lab/kernels.sh 6.1 >/dev/null 2>"$kept/fetch.log" || {
        echo "skipped: needs a kernel package of Debian's (lab boot): $(tail -n 1 "$kept/fetch.log")"
        return 0
    }
    paths=$(build --workspace)
    sys=$(grep /isotherm_sys- <<<"$paths")
    host=$(grep /isotherm_host- <<<"$paths")
    bpf=$(grep /isotherm_bpf- <<<"$paths")
    contract=$(grep /contract- <<<"$paths")
    isotherm=$(dirname "$(dirname "$PWD/$sys")")/isotherm
    extra=()
    local items=("isotherm=$isotherm=doctor" "isotherm_sys=$PWD/$sys" "isotherm_host=$PWD/$host" "isotherm_bpf=$PWD/$bpf"
        "contract=$PWD/$contract")
    # Two minutes on a usual machine. The limit is for a guest that hangs.
    run_guest_past_crashes 6.1 1200 "${items[@]}"
}

# Benches that configure the kernel, by program. One node, so that NUMA balancing takes no part.
declare -A benches=(
    [bench-damon]="--kernel 6.12 --nodes 1 --cpus 2 --memory 2048 --limit 1500"
    [bench-cold]="--kernel 6.12 --nodes 1 --cpus 1 --memory 1024 --swap 512 --in-turn --skip-idle --limit 12000"
    [bench-cold-redis]="--kernel 6.12 --nodes 1 --cpus 1 --memory 1280 --swap 768 --in-turn --skip-idle --limit 7000"
    [bench-advise]="--kernel 6.12 --nodes 1 --cpus 1 --memory 1024 --swap 512 --in-turn --skip-idle --limit 5000"
    [bench-tier]="--kernel 6.12 --nodes 1 --cpus 1 --memory 640 --slow 256 --in-turn --skip-idle --limit 3000"
)

# Benches whose parts run in guests of their own, side by side. Their figures are numbers of instructions, which what runs beside them does
# not change.
declare -A parts_of=([bench-cold]="ways loss evict")

run_bench() { # run_bench NAME LOG [ARGUMENT...]: the log has all output of the guest
    local name=$1 log=$2 program=$PWD/target/release/$1 tool bring=()
    shift 2
    if [ "$name" = bench-cold-redis ] && tool=$(command -v redis-server); then bring+=(--bring "$tool"); fi
    # shellcheck disable=SC2086 # words
    lab/boot.sh ${benches[$name]} "${bring[@]}" --log "${log%.log}.kernel.log" --bring "$program" --bring "$PWD/target/release/isotherm" \
        -- lab/suite.sh "$name=$program=$*" 2>&1 | tee "$log" | grep --line-buffered -v '^== ' || return "${PIPESTATUS[0]}"
}

# Prints the output of parts as that of one bench: the lines that all of them begin with once, and one RESULT.
join_parts() { # join_parts LOG...
    awk '/^RESULT / { result = result substr($0, 7); next }
        /^command:/ { on = 1 }
        on && !seen[$0]++ { print }
        /^== / { on = 0 }
        END { print "RESULT" result }' "$@" | grep -v '^== '
}

# The result is what the bench prints from its first line to its last. It is written on this machine, because a guest keeps nothing.
bench() { # bench NAME [ARGUMENT...]
    local name=$1 log=$kept/$1.log part running=() logs=() status=0
    shift
    [ -n "${benches[$name]:-}" ] || {
        echo "lab: there is no bench $name; benches are: ${!benches[*]}" >&2
        exit 2
    }
    cargo build --release --locked -q -p isotherm -p isotherm-bench --bin isotherm --bin "$name"
    if [ $# -gt 0 ] || [ -z "${parts_of[$name]:-}" ]; then
        run_bench "$name" "$log" "$@" || status=$?
    else
        for part in ${parts_of[$name]}; do
            logs+=("$kept/$name-$part.log")
            run_bench "$name" "$kept/$name-$part.log" --only "$part" &
            running+=("$!")
        done
        for part in "${running[@]}"; do wait "$part" || status=$?; done
        join_parts "${logs[@]}" >"$log"
        grep '^RESULT' "$log"
    fi
    grep -q '^RESULT ' "$log" || {
        echo "lab: $name printed no result; the whole output is in $log" >&2
        return 1
    }
    # Fewer seeds, or a part of it, would replace the figures of all.
    if [ $# -gt 0 ] || [ "$status" -ne 0 ]; then return "$status"; fi
    local out
    out=bench/results/$(date -u +%F)
    mkdir -p "$out"
    sed -n '/^command:/,/^RESULT /p' "$log" >"$out/$name.txt"
}

# bash reads the whole file before it runs any of it. A run takes minutes, and this file may be edited meanwhile.
main() {
    if [ "${1:-}" = --quick ]; then
        quick
        return
    elif [ "${1:-}" = --bench ]; then
        bench "${@:2}"
        return
    fi
    wanted=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do wanted+=("$1") && shift; done
    asked=()
    if [ $# -gt 1 ]; then shift && asked=("$@"); fi
    [ ${#wanted[@]} -gt 0 ] || wanted=("${order[@]}")
    for name in "${wanted[@]}"; do
        [ -n "${guests[$name]:-}" ] || {
            echo "lab: there is no guest $name; guests are: ${order[*]}" >&2
            exit 2
        }
    done

    paths=$(build --workspace)
    extra=()
    for tool in "${tools[@]}"; do
        if path=$(command -v "$tool"); then extra+=("$path=/usr/bin/$tool"); fi
    done
    mapfile -t -O "${#extra[@]}" extra < <(python)
    status=0
    for name in "${wanted[@]}"; do
        items=()
        if [ ${#asked[@]} -gt 0 ]; then
            list=("${asked[@]}")
        else
            read -ra list <<<"${binaries_of[$name]:-${binaries[*]}}"
        fi
        for binary in "${list[@]}"; do
            path=$(grep "/$binary-[0-9a-f]*\$" <<<"$paths") || {
                # The test of a source that is not in the repository yet.
                if [ "$binary" = mglru ] && ! ls crates/*/tests/mglru.rs >/dev/null 2>&1; then continue; fi
                echo "lab: cargo built no test $binary" >&2
                exit 1
            }
            words=" ${only[$name/$binary]:-${only[$binary]:-}}"
            while IFS=$'\t' read -r test reason; do
                words+=" --skip $test"
                echo "skipped in $name: $binary $test: $reason"
            done < <(left_out "$name" "$binary")
            words=${words//$'\n'/ }
            [[ $words = *" --skip *" ]] || items+=("$binary=$PWD/$path=$words")
        done
        isotherm=$(dirname "$(dirname "$PWD/$(head -n 1 <<<"$paths")")")/isotherm
        checks="doctor demo"
        [ -z "${binaries_of[$name]:-}" ] || checks=doctor
        run_guest_past_crashes "$name" 1200 "isotherm=$isotherm=$checks" "${items[@]}" || status=1
    done
    return "$status"
}
main "$@"; exit
