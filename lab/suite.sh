#!/bin/sh
# Runs tests inside a guest, one after the other. lab/run.sh starts it there and reads what it prints.
# usage: suite.sh NAME=PROGRAM[=ARGUMENTS]...
#
# PROGRAM is a test binary of cargo's, and ARGUMENTS are words for it. Under the name `isotherm`, it is the program itself, and
# ARGUMENTS the checks below to run with it. Checks print what a test of cargo's prints.
status=0
# Looking at pages is slow under emulation; what is tested is what is found, not how often a budget allows to look.
export ISOTHERM_MAX_CPU=${ISOTHERM_MAX_CPU:-60}
# There is one DAMON in a kernel, and on a real machine it may be somebody's: tests that set it up run only where this is set.
export ISOTHERM_LAB=1

check() { # check NAME COMMAND...: a test made of a shell function
    name=$1
    shift
    printf 'test %s ... ' "$name"
    if "$@" >/tmp/check.out 2>&1; then
        echo ok
    else
        echo FAILED
        echo "---- $name stdout ----"
        cat /tmp/check.out
        echo
        status=1
    fi
}

# Something else to run on each processor, now and then. An emulated one keeps translations until it changes to another process,
# far more of them than a real TLB holds; what is cleared without a flush, as by clear_refs, would never be seen touched again.
neighbours=''
with_neighbours() {
    processor=0
    while [ "$processor" -lt "$(nproc)" ]; do
        taskset -c "$processor" yes >/dev/null &
        renice -n 19 -p "$!" >/dev/null
        neighbours="$neighbours $!"
        processor=$((processor + 1))
    done
}

without_neighbours() {
    # shellcheck disable=SC2086 # words
    [ -z "$neighbours" ] || kill $neighbours
    neighbours=''
}

# An emulator crashes now and then when the kernel changes its code on one processor while another executes it, as it does for the
# first and after the last who wants to know of page faults. So somebody always wants to, and nothing else runs until the code is changed.
keep_faults_counted() {
    "$isotherm" events try faults -p 1 -d 2h >/dev/null 2>&1 &
    kept=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 1
        ! ls -l "/proc/$kept/fd" 2>/dev/null | grep -q perf_event || break
    done
    sleep 1
}

# The same of the tracepoints of works and locks, which are executed all the time. Two, for the kernel changes its code for the second
# who wants to know as well, and for no other after. Processors that are executed in turn are not at it while another changes it.
keep_housekeeping_watched() {
    ! grep -q 'lab.in_turn=1' /proc/cmdline || return 0
    for watcher in 1 2; do
        "$isotherm" herd -d 2h >/dev/null 2>&1 &
        sleep 2
    done
}

number() { # number KEY: of /tmp/demo.json
    grep -o "\"$1\": *[-0-9.e]*" /tmp/demo.json | head -n 1 | sed 's/.*: *//'
}

doctor() {
    "$isotherm" doctor && "$isotherm" doctor --json >/tmp/doctor.json && grep -q '"source": *"page-table"' /tmp/doctor.json
}

demo() {
    "$isotherm" demo --json --size 64MiB --duration 10s "$@" >/tmp/demo.json || return 1
    cat /tmp/demo.json
    awk -v p="$(number precision)" -v r="$(number recall)" -v e="$(number read_errors)" 'BEGIN {
        print "precision", p, "recall", r, "read errors", e
        exit !(p >= 0.95 && r >= 0.95 && e == 0)
    }'
}

for item in "$@"; do
    name=${item%%=*}
    rest=${item#*=}
    program=${rest%%=*}
    arguments=${rest#"$program"}
    arguments=${arguments#=}
    echo "== $name"
    if [ "$name" = isotherm ]; then
        isotherm=$program
        keep_faults_counted
        for wanted in $arguments; do
            case $wanted in
            doctor) check the_doctor_has_the_page_table_source doctor ;;
            demo) check the_demo_finds_the_hot_pages_and_only_those demo ;;
            esac
        done
    else
        # Those that test sources which do not flush; damon brings neighbours of its own.
        [ "$name" != live ] || with_neighbours
        [ "$name" != herd ] || keep_housekeeping_watched
        # shellcheck disable=SC2086 # words
        RUST_BACKTRACE=0 "$program" --test-threads=1 --color never $arguments 2>&1 && ended=0 || ended=$?
        [ "$ended" -eq 0 ] || status=1
        without_neighbours
        echo "== exit status $ended"
    fi
done
echo "== end"
exit "$status"
