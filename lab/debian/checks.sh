#!/usr/bin/env bash
# What the tests in the guest of lab/debian.sh share: how a check is run and printed, how settings are changed, and a redis-server with work.
# Sourced by them.
#
# A line per check, as lab/run.sh prints them: "ok NAME (N s)" or "FAILED NAME (N s): WHY", and after a failure what the check printed.
# Times are those of the guest's clock.
# shellcheck disable=SC2034 # budgets and failed are read by those who source this
state=/run/lab/state
mkdir -p $state
# Emulation makes one access check cost twenty times as much: with the default budgets much memory would not be checked in time.
# Over 100 lifts the limit of the slow-down.
budgets=([0]='watch max_cpu 60.0' [1]='watch max_slowdown 1000.0' [2]='budgets stall_pct 200.0' [3]='budgets cpu_pct 200.0')

uptime_s() { cut -d. -f1 /proc/uptime; }
failed=0
# A check is a function. The last line that it prints is the reason of a failure.
check() { # check NAME FUNCTION [ARGUMENT]...
    local name=$1 began why result=0
    shift
    began=$(uptime_s)
    if "$@" >$state/check.out 2>&1; then
        echo "  ok       $name ($(($(uptime_s) - began)) s)$([ ! -s $state/note ] || echo ": $(cat $state/note)")"
    else
        result=1 failed=$((failed + 1))
        why=$(grep -v '^ *$' $state/check.out | tail -n 1)
        echo "  FAILED   $name ($(($(uptime_s) - began)) s): ${why:-no reason was given}"
        # dpkg writes its progress over itself.
        tr '\r' '\n' <$state/check.out | sed 's/(Reading database \.\.\. [0-9]*%//g; /^ *$/d' | uniq | tail -n 30 | sed 's/^/    /'
    fi
    rm -f $state/note
    return $result
}
note() { echo "$*" >$state/note; }
fail() {
    echo "$*"
    return 1
}
# Waits for a condition, with a time limit.
within() { # within SECONDS COMMAND...
    local until=$(($(uptime_s) + $1))
    shift
    until "$@"; do
        [ "$(uptime_s)" -lt $until ] || return 1
        sleep 0.5
    done
}

# Of units.
property() { systemctl show --property "$2" --value "$1.service"; }
pid_of() { property "$1" MainPID; }
is_active() { [ "$(property "$1" ActiveState)" = active ]; }

# Sets a key of the settings: in place, also where it is commented out, or at the head of its table.
set_key() { # set_key TABLE KEY VALUE
    perl -e '
        my ($table, $key, $value) = splice @ARGV, 0, 3;
        my ($in, $done, @out) = (0, 0);
        while (<>) {
            if (/^#?\s*\[/) {
                push @out, "$key = $value\n" and $done = 1 if $in && !$done;
                $in = /^\[\Q$table\E\]/;
            } elsif ($in && !$done && /^#?\s*\Q$key\E\s*=/) { $_ = "$key = $value\n"; $done = 1 }
            push @out, $_;
        }
        push @out, ($in ? "" : "[$table]\n"), "$key = $value\n" unless $done;
        print @out' "$@" $settings >$state/settings
    cat $state/settings >$settings # keeps owner and mode
}

# What isotherm works on: a redis-server that is filled, and then read until the process in $state/load ends.
load() {
    redis-cli config set save '' >/dev/null # no forked copy, which would pause collapses
    redis-cli flushall >/dev/null
    timeout 200 redis-benchmark -q -t set -n 240000 -r 120000 -d 400 -P 64 >/dev/null || fail "redis-benchmark could not fill the server"
    note "$(redis-cli info memory | sed -n 's/^used_memory_human:\([^\r]*\).*/\1/p')"
    timeout 600 redis-benchmark -q -t get -n 100000000 -r 120000 -P 16 >/dev/null 2>&1 &
    echo $! >$state/load
}
redis_pid() { pid_of redis-server; }
redis_huge_kb() { awk '/^AnonHugePages/ {print $2}' "/proc/$(redis_pid)/smaps_rollup"; }
# Not a passing one: a huge page may be split again, and an eighth of the memory is hot beyond doubt.
has_huge() { [ "$(redis_huge_kb)" -ge 8192 ] && sleep 5 && [ "$(redis_huge_kb)" -ge 8192 ]; }
