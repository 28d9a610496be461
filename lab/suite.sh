#!/bin/sh
# Runs tests in a guest, one after the other. lab/run.sh starts it there and reads its output.
# usage: suite.sh NAME=PROGRAM[=ARGUMENTS]...
#
# PROGRAM is a test binary that cargo built, and ARGUMENTS are its arguments. If NAME is `isotherm`, PROGRAM is isotherm itself, and
# ARGUMENTS are the checks below to run with it. Checks print the same lines as cargo's tests.
status=0
# Access checks are slow under emulation. The tests check what is found, not how many access checks a budget allows.
export ISOTHERM_MAX_CPU=${ISOTHERM_MAX_CPU:-60}
# A kernel has one DAMON, and on a real machine it may be in use. So tests that configure it run only where this is set.
export ISOTHERM_LAB=1

check() { # check NAME COMMAND...: runs a shell function as a test
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

# Runs another process on each processor, now and then. An emulated processor keeps translations until it switches to another process,
# and it keeps far more of them than a real TLB. After a clear without a flush, as by clear_refs, accesses would never be found again.
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

# An emulator crashes now and then when the kernel patches code on one processor while another executes it. The kernel does so when the
# first user of page-fault events appears, and after the last has gone. So this keeps one user, and nothing else runs until the code is
# patched.
keep_faults_counted() {
    "$isotherm" events try faults -p 1 -d 2h >/dev/null 2>&1 &
    kept=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 1
        ! ls -l "/proc/$kept/fd" 2>/dev/null | grep -q perf_event || break
    done
    sleep 1
}

# The same for the tracepoints of workqueues and locks, which are executed all the time. It takes two users, because the kernel also
# patches code for the second user, but for none after it. Not needed where one thread executes all processors: none of them executes the
# code while another patches it.
keep_housekeeping_watched() {
    ! grep -q 'lab.one_thread=1' /proc/cmdline || return 0
    for watcher in 1 2; do
        "$isotherm" zone-lock -d 2h >/dev/null 2>&1 &
        sleep 2
    done
}

# The same for the first cgroup with a memory controller: one is kept.
keep_memory_charged() {
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir /sys/fs/cgroup/kept && sleep 1
}

number() { # number KEY: prints its value in /tmp/demo.json
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
        # For tests of sources that do not flush the TLB. damon starts its own neighbours.
        [ "$name" != live ] || with_neighbours
        [ "$name" != zone_lock ] || keep_housekeeping_watched
        [ "$name" != clear_in_shortage ] || keep_memory_charged
        # A bench is no test binary, and refuses the options of one.
        case $name in bench-*) options= ;; *) options="--test-threads=1 --color never" ;; esac
        # shellcheck disable=SC2086 # words
        RUST_BACKTRACE=0 "$program" $options $arguments 2>&1 && ended=0 || ended=$?
        [ "$ended" -eq 0 ] || status=1
        without_neighbours
        echo "== exit status $ended"
    fi
done
echo "== end"
exit "$status"
