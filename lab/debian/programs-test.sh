#!/usr/bin/env bash
# Pages out what real programs do not use. Runs in the guest that lab/debian.sh boots; lab/programs.sh starts it there.
# usage: programs-test.sh [PROGRAM...]    programs are those of `programs` below, all in one slice, which isotherm watches
#
# Each program has a function NAME_start, which fills it and has a little of its data used from then on, and NAME_sum, which prints a
# checksum of all its data and so brings all of it back.
set -uo pipefail
cd "$(dirname "$0")" || exit 2
export LC_ALL=C SYSTEMD_PAGER='' SYSTEMD_COLORS=0
# shellcheck source=lab/debian/checks.sh
. ./checks.sh
programs=("$@")
[ $# -gt 0 ] || programs=(redis memcached postgres java python)
isotherm=$PWD/isotherm helper=$PWD/programs.py

declare -A port=([redis]=7101 [memcached]=7102 [postgres]=7103)
# MiB that have to leave: about half of what is idle.
declare -A least=([redis]=60 [memcached]=40 [postgres]=30 [java]=60 [python]=60)
users=() # processes that use the data

start_unit() { # start_unit NAME [OPTION OF systemd-run...] -- COMMAND...
    local name=$1
    shift
    systemd-run --quiet --slice=lab.slice --unit="lab-$name" "$@"
}
pids_of() { cat "/sys/fs/cgroup/lab.slice/lab-$1.service/cgroup.procs"; }
# Sums over the processes of a program.
resident_kb() { sum_of "$1" VmRSS; }
swapped_kb() { sum_of "$1" VmSwap; }
sum_of() { # sum_of PROGRAM KEY
    local pid
    for pid in $(pids_of "$1"); do cat "/proc/$pid/status"; done 2>/dev/null | awk -v key="$2:" '$1 == key {kb += $2} END {print kb + 0}'
}
read_faults() {
    local pid
    for pid in $(pids_of "$1"); do sed 's/.*) //' "/proc/$pid/stat"; done 2>/dev/null | awk '{faults += $10} END {print faults + 0}'
}
listens() { (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

redis_start() {
    start_unit redis -- /usr/bin/redis-server --port "${port[redis]}" --bind 127.0.0.1 --save '' --appendonly no --enable-debug-command yes || return
    within 60 listens "${port[redis]}" || fail "it does not listen" || return
    redis-cli -p "${port[redis]}" debug populate 120000 key 700 >/dev/null || return
    python3 "$helper" ask "${port[redis]}" redis &
    users+=($!)
}
redis_sum() { redis-cli -p "${port[redis]}" debug digest; }

# Its crawler goes through all items now and then, to give back those that have expired. With it nothing is idle, and the brake holds.
memcached_start() {
    start_unit memcached -- /usr/bin/memcached -l 127.0.0.1 -p "${port[memcached]}" -m 256 -u nobody -o no_lru_crawler || return
    within 60 listens "${port[memcached]}" || fail "it does not listen" || return
    python3 "$helper" fill-memcached "${port[memcached]}" || return
    python3 "$helper" ask "${port[memcached]}" memcached &
    users+=($!)
}
memcached_sum() { python3 "$helper" sum-memcached "${port[memcached]}"; }

# A session that holds the rows of a cursor in its own memory, and asks for nothing much. Shared buffers are shared memory, and stay.
postgres_start() {
    local bin at=/var/tmp/lab-postgres
    bin=$(echo /usr/lib/postgresql/*/bin)
    install -d -o postgres "$at" && cd "$at" || return
    runuser -u postgres -- "$bin/initdb" -D $at/data -A trust --no-sync >/dev/null || return
    start_unit postgres --uid=postgres -- "$bin/postgres" -D $at/data -p "${port[postgres]}" -k $at -c work_mem=512MB -c fsync=off || return
    within 120 runuser -u postgres -- "$bin/pg_isready" -q -h $at -p "${port[postgres]}" || fail "it is not ready" || return
    mkfifo $at/session
    runuser -u postgres -- psql -q -A -t -h $at -p "${port[postgres]}" <$at/session >/dev/null &
    users+=($!)
    exec 9>$at/session
    echo "BEGIN; DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT n, repeat(md5(n::text), 20) FROM generate_series(1, 70000) n; COMMIT;" >&9
    postgres_sum >/dev/null
    while sleep 0.5; do echo 'SELECT 1;'; done >&9 &
    users+=($!)
    cd - >/dev/null || return
}
postgres_sum() {
    local at=/var/tmp/lab-postgres
    rm -f $at/sum
    # \g sends the rows to a program, and the file has its name when that has ended.
    echo "MOVE ABSOLUTE 0 held; FETCH ALL held \\g | md5sum >$at/part && mv $at/part $at/sum" >&9
    within 240 test -e $at/sum || fail "no rows" || return
    cat $at/sum
}

# With a small young generation. New objects go through all of it, and where that takes longer than the age, it leaves and comes back.
java_start() {
    install -d /var/tmp/lab-java
    start_unit java -- /usr/bin/java -Xms192m -Xmx192m -Xmn16m -Dhold.dir=/var/tmp/lab-java -cp /usr/share/java/bsh.jar bsh.Interpreter "$PWD/hold.bsh" || return
    until_ready java
}
java_sum() { ask_for_sum /var/tmp/lab-java; }

python_start() {
    install -d /var/tmp/lab-python
    start_unit python -- /usr/bin/python3 "$helper" hold /var/tmp/lab-python || return
    until_ready python
}
python_sum() { ask_for_sum /var/tmp/lab-python; }

until_ready() { # until_ready PROGRAM
    within 400 test -e "/var/tmp/lab-$1/ready" || { journalctl --no-pager -q -o cat -u "lab-$1" -n 20; fail "it is not ready"; }
}
ask_for_sum() { # ask_for_sum DIR
    rm -f "$1/sum"
    touch "$1/ask"
    within 240 test -e "$1/sum" || fail "no answer" || return
    cat "$1/sum"
}

# --- what is checked

starts() {
    "$1_start" && "$1_sum" >"$state/$1.before" && [ -s "$state/$1.before" ] || fail "no checksum" || return
    resident_kb "$1" >"$state/$1.kb"
    note "$(($(resident_kb "$1") >> 10)) MiB resident"
}
monitor_starts() {
    {
        printf '[watch]\nmax_cpu = 60.0\nmax_slowdown = 1000.0\n[budgets]\nstall_pct = 200.0\ncpu_pct = 200.0\n'
        printf '[[scheme]]\naction = "page-out"\nmin_idle = "20s"\n'
    } >$state/settings.toml
    "$isotherm" run --config $state/settings.toml --socket $state/socket --cgroup lab.slice >$state/isotherm.out 2>&1 &
    echo $! >$state/isotherm.pid
    within 30 eval "'$isotherm' status --socket $state/socket >/dev/null 2>&1" || fail "$(tail -n 1 $state/isotherm.out)"
}
status() { "$isotherm" status --json --socket $state/socket; }
of_program() { # of_program NAME FIELD: the sum over its processes
    local list
    list=$(pids_of "$1" | paste -sd,)
    status | jq "[.targets[] | select(.pid as \$pid | [$list] | index(\$pid)) | .page_out.$2 // 0] | add // 0"
}
leaves() {
    local kb=$((${least[$1]} << 10))
    within 300 eval "[ \"\$(swapped_kb $1)\" -ge $kb ]" || {
        status | jq -c '.targets[] | {pid, comm, page_out}'
        fail "$(swapped_kb "$1") kB have left after 300 s, not $kb"
    } || return
    note "$(($(<"$state/$1.kb") >> 10)) -> $(($(resident_kb "$1") >> 10)) MiB resident, $(($(swapped_kb "$1") >> 10)) MiB in swap"
}
# For half a minute: what has left was not in use, and what is in use has not left.
stays_out() {
    local before faults bound=$(($(<"$state/$1.kb") / 4 / 100))
    before=$(read_faults "$1")
    sleep 30
    faults=$(($(read_faults "$1") - before))
    note "$faults pages read again in 30 s, $(of_program "$1" refaults_pct_minute | cut -c -5)% of the working set a minute by its status"
    # A hundredth of all its pages. At so short an age what is used now and then leaves, too, until the brake holds: 130 pages of the JVM.
    [ "$faults" -le "$bound" ] || fail "$faults pages were read again in 30 s, more than $bound"
}
# No check, because a brake takes hold for a minute, and each program is at its own point of it: for the reader.
report() {
    status | jq -r '.targets[] | select(.page_out != null) | "  \(.comm) (\(.pid)): out \(.page_out.out_bytes / 1048576 | floor) MiB, read again \(.page_out.refaulted_bytes / 1048576 * 10 | floor / 10) MiB, stays \(.page_out.stays)"'
}
monitor_ends() {
    kill -INT "$(<$state/isotherm.pid)"
    within 30 eval "! kill -0 $(<$state/isotherm.pid) 2>/dev/null" || fail "it does not end"
}
is_the_same() {
    "$1_sum" >"$state/$1.after" || fail "no checksum" || return
    cmp "$state/$1.before" "$state/$1.after" || fail "$(<"$state/$1.before") before, $(<"$state/$1.after") after" || return
    note "$(($(swapped_kb "$1") >> 10)) MiB in swap then"
}

systemctl stop redis-server memcached postgresql 2>/dev/null
started=()
for program in "${programs[@]}"; do
    check "$program is filled and used" starts "$program" && started+=("$program")
done
if check "isotherm watches them" monitor_starts; then
    for program in "${started[@]}"; do check "idle memory of $program leaves" leaves "$program"; done
    for program in "${started[@]}"; do check "what is in use of $program stays" stays_out "$program"; done
    report
    check "isotherm ends" monitor_ends
fi
for program in "${started[@]}"; do check "the data of $program is as it was" is_the_same "$program"; done
kill "${users[@]}" 2>/dev/null
echo '== end'
[ "$failed" -eq 0 ]
