#!/usr/bin/env bash
# Installs, runs, upgrades and purges packages of isotherm. Runs in the guest that lab/debian.sh boots; lab/packages.sh starts it there.
# usage: package-test.sh NEW.deb OLD.deb [PART...]    the packages lie next to this script; parts are those of `parts` below
#
# Prints one line per check, as lab/run.sh does: "ok NAME (N s)" or "FAILED NAME (N s): WHY", and after a failure what the check
# printed. Times are those of the guest's clock. Exit status 1: a check failed.
# shellcheck disable=SC2016 # conditions that `within` evaluates
set -uo pipefail
cd "$(dirname "$0")" || exit 2
export DEBIAN_FRONTEND=noninteractive LC_ALL=C SYSTEMD_PAGER='' SYSTEMD_COLORS=0
new=$PWD/$1 old=$PWD/$2
shift 2
parts=("$@")
[ $# -gt 0 ] || parts=(upgrade work files ship sandbox restarts removal)
# shellcheck source=lab/debian/checks.sh
. ./checks.sh

package=isotherm
settings=/etc/isotherm/isotherm.toml
units=(isotherm isotherm-serve isotherm-ship)
# Of `systemd-analyze security`: at most so exposed. A monitor takes capabilities that these points are for.
declare -A max_exposure=([isotherm]=3.5 [isotherm-serve]=1.9 [isotherm-ship]=1.9)

installed() { systemctl cat "$1.service" >/dev/null 2>&1; }
log_of() { journalctl --no-pager -q -o cat -u "$1.service" "${@:2}"; }
status() { isotherm status --json "${socket[@]}"; }
# The socket that the settings name. Without one it is where isotherm looks for it.
socket=()
find_socket() {
    local at
    at=$(sed -n 's/^socket *= *"\(.*\)".*/\1/p' $settings)
    socket=(${at:+--socket "$at"})
}

# What a package may leave behind: files, their contents in /etc, users, groups, units, packages.
machine() { # machine NAME
    local at=$state/$1
    mkdir -p "$at"
    # Without what every service and package leaves: logs, caches, stamps, lists of packages.
    find / -xdev \( -path /tmp -o -path /var/tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/redis \) -prune \
        -o -print | grep -vE '^/var/lib/dpkg/[^/]*(-old|lock.*|status|available)$|^/var/lib/dpkg/(triggers|updates)/|^/var/lib/systemd/(random-seed|timers|catalog)|^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|^/etc/\.pwd\.lock$' |
        sort >"$at/files"
    find /etc -xdev -type f ! -name '*-' ! -name ld.so.cache ! -name mtab ! -name .pwd.lock ! -name .updated -exec md5sum {} + | sort -k2 >"$at/contents"
    { getent passwd && getent group; } | sort >"$at/users"
    systemctl list-unit-files --no-legend | sort >"$at/units"
    dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n' | sort >"$at/packages"
}
same_machine() { # same_machine BEFORE AFTER: nothing is left, and nothing else has changed
    local kind
    for kind in files contents users units packages; do
        diff "$state/$1/$kind" "$state/$2/$kind" | sed -n "s/^> /left $kind: /p; s/^< /gone $kind: /p"
    done >$state/differences
    [ ! -s $state/differences ] || {
        cat $state/differences
        fail "$(wc -l <$state/differences) differences, the last: $(tail -n 1 $state/differences)"
    }
}

install_package() { # install_package FILE
    # Settings that the user has changed stay, as the answer to dpkg's question would be.
    apt-get install -y -q --allow-downgrades -o Dpkg::Options::=--force-confold "$1" || fail "apt-get install $(basename "$1") failed: $(tail -n 1 $state/check.out)"
}
has_version() { # has_version FILE
    local want have
    want=$(dpkg-deb -f "$1" Version)
    have=$(dpkg-query -W -f '${Version}' $package)
    note "$have"
    [ "$have" = "$want" ] || fail "version $have is installed, not $want"
}
service_is_active() { # service_is_active UNIT
    # Not when systemd has given up.
    within 60 eval "is_active $1 || [ \$(property $1 ActiveState) = failed ]"
    is_active "$1" || {
        systemctl status --no-pager -l "$1.service"
        fail "$1.service is $(property "$1" ActiveState)/$(property "$1" SubState), result $(property "$1" Result): $(log_of "$1" -n 1)"
    } || return
    note "Type=$(property "$1" Type), $(($(property "$1" MemoryCurrent) >> 20)) MiB"
}
service_notifies() {
    [[ $(property "$1" Type) = notify* ]] || fail "Type=$(property "$1" Type), not notify"
}
status_answers() {
    find_socket
    within 30 status >/dev/null 2>&1 || { status; fail "isotherm status does not answer: $(status 2>&1 | tail -n 1)"; }
}

# --- upgrade: from the older package, with a setting changed between

change_settings() {
    local line
    [ -f $settings ] || fail "there is no $settings" || return
    # shellcheck disable=SC2086 # words
    for line in "${budgets[@]}"; do set_key $line; done
    set_key budgets per_second 31.0
    # As it is installed, it only counts. An older package may act at once.
    sed -i 's/^dry_run = true/dry_run = false/' $settings
    grep -q '^per_second = 31.0' $settings
}
kept_settings() {
    grep -q '^per_second = 31.0' $settings || fail "the upgrade replaced $settings"
}
new_process() {
    within 60 is_active isotherm || fail "isotherm.service is $(property isotherm ActiveState)" || return
    [ "$(pid_of isotherm)" != "$(cat $state/pid)" ] || fail "isotherm.service still runs the process of the older package (pid $(cat $state/pid))"
}
takes_setting() { # takes_setting KEY VALUE: of [budgets]
    within 30 eval "[ \"\$(status | jq '.budgets.$1')\" = $2 ]" || fail "status has budgets.$1 = $(status | jq -c ".budgets.$1"), not $2"
}
upgrade() {
    check "install the older package" install_package "$old" || return
    check "the older version is installed" has_version "$old"
    check "isotherm.service is active" service_is_active isotherm || return
    check "isotherm.service reports when it is ready" service_notifies isotherm
    check "isotherm status answers" status_answers || return
    check "settings are changed" change_settings || return
    pid_of isotherm >$state/pid
    check "upgrade" install_package "$new" || return
    check "the newer version is installed" has_version "$new"
    check "the service runs the new program" new_process || return
    check "the upgrade keeps changed settings" kept_settings
    check "the service has read them" takes_setting per_second 31
}

# Where a part is run alone, or after a failure.
is_installed() {
    [ "$(dpkg-query -W -f '${Version}' $package 2>/dev/null)" = "$(dpkg-deb -f "$new" Version)" ] || check "install" install_package "$new"
}
ready() {
    is_installed || return
    find_socket
    [ -e $state/pid ] || { change_settings && systemctl restart isotherm && within 30 status >/dev/null; } >/dev/null 2>&1
    is_active isotherm || check "isotherm.service is active" service_is_active isotherm
}

# --- work: what the service does, and what it serves

redis_collapses() {
    within 180 has_huge || { isotherm status "${socket[@]}"; fail "redis-server has $(redis_huge_kb) kB of huge pages after 180 s: $(status | jq -c '{paused, waiting, collapsed, skipped, counters}' | cut -c -600)"; } || return
    within 10 eval '[ "$(status | jq .collapsed)" -gt 0 ]' || fail "redis-server has $(redis_huge_kb) kB of huge pages, but status counts no collapse"
    note "$(redis_huge_kb) kB of huge pages, $(status | jq .collapsed) collapses"
}
# Of other users' processes too, with the unit's capabilities.
skips_none() {
    local skipped
    skipped=$(log_of isotherm | grep 'is no longer watched')
    [ -z "$skipped" ] || fail "$(tail -n 1 <<<"$skipped")"
}
server_starts() {
    installed isotherm-serve || fail "the package has no isotherm-serve.service" || return
    is_active isotherm-serve || { systemctl start isotherm-serve && echo "started by this test" ; } || fail "$(log_of isotherm-serve -n 3 | tail -n 1)" || return
    service_is_active isotherm-serve
}
reads_again() { # reads_again UNIT
    local before
    before=$(pid_of "$1")
    systemctl reload "$1" || fail "systemctl reload failed: $(log_of "$1" -n 1)" || return
    within 20 eval "log_of $1 -n 20 | grep -q 'were read again'" || fail "the journal has no word of it: $(log_of "$1" -n 1)" || return
    { is_active "$1" && [ "$(pid_of "$1")" = "$before" ]; } || fail "the reload replaced the process"
}
# The token is where the unit says: the path is that of the server's own view of the file system.
token() {
    local pid file
    pid=$(pid_of isotherm-serve)
    file=$(tr '\0' '\n' <"/proc/$pid/cmdline" | awk 'take {print; exit} /^--token-file$/ {take = 1} sub(/^--token-file=/, "") {print; exit}')
    cat "/proc/$pid/root${file:-/none}"
}
scrape() { curl -sS --max-time 10 -H "Authorization: Bearer $(token)" http://127.0.0.1:4780/metrics >$state/metrics; }
has_redis() { scrape && grep -q '^isotherm_memory_bytes{.*redis.*} [1-9]' $state/metrics; }
metrics_are_scraped() {
    within 120 has_redis || {
        grep -m 5 ^isotherm_ $state/metrics
        fail "no isotherm_memory_bytes of redis-server at http://127.0.0.1:4780/metrics: $(scrape 2>&1 | tail -n 1)$(head -c 200 $state/metrics)"
    } || return
    note "$(grep -c ^isotherm_ $state/metrics) samples"
}
token_is_asked_for() {
    local code
    code=$(curl -sS -o /dev/null -w '%{http_code}' --max-time 10 http://127.0.0.1:4780/metrics)
    [ "$code" = 401 ] || [ "$code" = 404 ] || fail "/metrics without the token answers $code"
}
has_no_rights() { # has_no_rights UNIT
    local pid
    pid=$(pid_of "$1")
    grep -qE '^CapEff:\s+0+$' "/proc/$pid/status" || fail "$1 has capabilities: $(grep ^CapEff "/proc/$pid/status")" || return
    # Of a process that may not be traced, /proc belongs to root.
    note "user $(ps -o user= -p "$pid")"
    [ "$(ps -o uid= -p "$pid")" -ne 0 ] || fail "$1 runs as root"
}
work() {
    ready || return
    check "redis is filled and read" load || return
    check "hot memory of redis is collapsed" redis_collapses
    check "no process is skipped for want of a privilege" skips_none
    check "isotherm-serve.service is active" server_starts &&
        check "metrics of redis are scraped" metrics_are_scraped
    check "the server reads its files again" reads_again isotherm-serve
    check "metrics ask for the token" token_is_asked_for
    check "the server has no capability and is not root" has_no_rights isotherm-serve
    kill "$(cat $state/load)" 2>/dev/null
}

# --- files: idle files leave the cgroup of a service, with the drop-in for that

file=/var/tmp/lab-file
file_mib=96 hot_mib=16
reader_kb() { awk '/^Rss/ {print $2}' "/proc/$(pid_of lab-reader)/smaps_rollup"; }
of_reader() { status | jq -r ".cgroups[]? | select(.cgroup | endswith(\"lab-reader.service\")) | $1"; }
reader_runs() {
    dd if=/dev/urandom of=$file bs=1M count=$file_mib status=none || fail "no room for $file" || return
    # Its pages are charged to who reads them first.
    sync
    echo 3 >/proc/sys/vm/drop_caches
    systemd-run --quiet --unit=lab-reader "$PWD/map-file" $file $hot_mib || return
    within 60 eval "[ \"\$(reader_kb)\" -ge $((file_mib * 900)) ]" || fail "it has $(reader_kb) kB of $((file_mib << 10))"
}
# With the table at the end of the settings, so that it is the last.
take_scheme() {
    printf '\n[[scheme]]\naction = "reclaim"\ncgroups = ["/system.slice/lab-reader.service"]\nmin_idle = "10s"\n' | cat $settings - >$state/with-scheme
    cp $settings $state/without-scheme
    cat $state/with-scheme >$settings
    systemctl restart isotherm && within 30 status >/dev/null 2>&1 || fail "$(log_of isotherm -n 2 | tail -n 1)"
}
cannot_be_asked() {
    within 120 eval '[ "$(of_reader .stays)" = cannot-be-asked ]' || { status | jq -c .cgroups; fail "status says: $(of_reader .stays), idle $(of_reader .idle_bytes)"; } || return
    log_of isotherm -n 50 | grep -q 'lab-reader.*memory.reclaim' || fail "the journal does not name it: $(log_of isotherm -n 1)" || return
    [ "$(reader_kb)" -ge $((file_mib * 900)) ] || fail "some has left all the same: $(reader_kb) kB are there"
}
may_write_cgroups() {
    local at=/run/systemd/system/isotherm.service.d
    mkdir -p $at
    printf '[Service]\nProtectControlGroups=no\n' >$at/lab-files.conf
    systemctl daemon-reload
    systemctl restart isotherm && within 30 status >/dev/null 2>&1
}
idle_leaves() {
    within 240 eval "[ \"\$(reader_kb)\" -le $(((file_mib + hot_mib) * 512)) ]" || { status | jq -c .cgroups; fail "after 240 s $(reader_kb) kB are there: stays $(of_reader .stays), waits for $(of_reader .waiting), idle $(of_reader .idle_bytes), asked for $(of_reader .asked_bytes), left $(of_reader .left_bytes)"; } || return
    note "$(reader_kb) kB of $((file_mib << 10)) are left, status counts $(($(of_reader .left_bytes) >> 10)) kB, read again $(($(of_reader .refaulted_bytes) >> 10)) kB"
    [ "$(of_reader .left_bytes)" -gt $((32 << 20)) ] || fail "status counts $(of_reader .left_bytes) bytes"
}
hot_stays() {
    # The kernel chooses; what is read ten times a second is young in its lists, too.
    [ "$(reader_kb)" -ge $((hot_mib * 900)) ] || fail "$(reader_kb) kB of $((hot_mib << 10)) that are in use are there"
}
files() {
    ready || return
    [ -x map-file ] || { check "map-file was brought" false; return; }
    uname -r | grep -q '^6\.1\.' && { check "idle files (skipped: needs Linux 6.11)" true; return; }
    check "a service has mapped and read a file" reader_runs || return
    check "a scheme takes files of its cgroup" take_scheme || return
    check "within the unit as it is it cannot, and says so" cannot_be_asked
    check "the drop-in for it is taken" may_write_cgroups
    check "what is idle of the file leaves" idle_leaves
    check "what is in use stays" hot_stays
    systemctl stop lab-reader
    rm -r /run/systemd/system/isotherm.service.d $file
    cat $state/without-scheme >$settings
    systemctl daemon-reload
    systemctl restart isotherm
    check "isotherm.service is active without it" service_is_active isotherm
}

# --- ship: rollups of the monitor's snapshots, into a folder

store=/var/lib/isotherm-store
drop_in=/etc/systemd/system/isotherm-ship.service.d/store.conf
is_off() {
    ! is_active isotherm-ship && [ "$(systemctl is-enabled isotherm-ship)" = disabled ] || fail "it is $(property isotherm-ship ActiveState), $(systemctl is-enabled isotherm-ship)"
}
# As the comments in its settings say.
give_it_a_store() {
    install -d -o isotherm-ship -g isotherm-ship $store
    mkdir -p "$(dirname $drop_in)"
    printf '[Service]\nReadWritePaths=%s\n' $store >$drop_in
    sed -i "s|^STORE=.*|STORE=\"$store\"|; s|^OPTIONS=.*|OPTIONS=\"--every 1s --spread 0s\"|" /etc/default/isotherm-ship
    systemctl daemon-reload
    # An hour becomes objects when it ends.
    date -s "$(date +'%F %H:59:00')" >/dev/null
    systemctl start isotherm-ship || fail "$(log_of isotherm-ship -n 3 | tail -n 1)" || return
    service_is_active isotherm-ship
}
has_objects() { compgen -G "$store/v1/heat/date=*/hour=*/*.parquet" >/dev/null; }
sends() {
    local tables
    within 180 has_objects || { ls -R $store | tail -n 5; fail "nothing in $store after 180 s: $(log_of isotherm-ship -n 1)"; } || return
    tables=$(find $store/v1 -mindepth 1 -maxdepth 1 | wc -l)
    note "$tables tables, $(du -s --apparent-size -b $store | cut -f 1) bytes"
    [ "$tables" -ge 5 ] || fail "only $tables tables are in the store: $(ls $store/v1 | xargs)"
}
counts_what_it_sent() {
    local status
    status=$(isotherm-ship --status /var/lib/isotherm-ship/spool --json)
    note "$(jq -c '.counts | {sent_objects, sent_bytes, dropped_objects}' <<<"$status")"
    jq -e '.running and .counts.sent_objects > 0 and .counts.dropped_objects == 0 and .shipper.failed_puts == 0 and .shipper.monitor_trouble == null' <<<"$status" >/dev/null || fail "$(jq -c . <<<"$status" | cut -c -300)"
}
ship() {
    ready || return
    check "isotherm-ship.service is off until it has a store" is_off
    check "it starts when it has one" give_it_a_store || return
    check "it has no capability and is not root" has_no_rights isotherm-ship
    check "it reads its files again" reads_again isotherm-ship
    check "at the end of the hour its rollups are in the store" sends
    check "its status counts them" counts_what_it_sent
    systemctl stop isotherm-ship
    rm -r $drop_in $store
    rmdir "$(dirname $drop_in)"
    systemctl daemon-reload
}

# --- restarts: reload, kill, watchdog

reload() {
    pid_of isotherm >$state/reload.pid
    set_key budgets per_second 17.0
    systemctl reload isotherm || fail "systemctl reload failed: $(log_of isotherm -n 1)" || return
    takes_setting per_second 17 || return
    [ "$(pid_of isotherm)" = "$(cat $state/reload.pid)" ] || fail "the reload replaced the process"
}
# What watching has to start over for: the source is opened again, within the sandbox.
restarting_reload() {
    set_key watch window '"2s"'
    systemctl reload isotherm || fail "systemctl reload failed: $(log_of isotherm -n 1)" || return
    within 30 eval 'log_of isotherm -n 20 | grep -q "watching restarted"' || fail "watching is not restarted: $(log_of isotherm -n 1)" || return
    [ "$(pid_of isotherm)" = "$(cat $state/reload.pid)" ] || fail "the reload replaced the process"
}
bad_reload() {
    cp $settings $state/good
    echo 'no_such_key = 1' | cat - $state/good >$settings
    systemctl reload isotherm # may refuse or not
    within 20 eval 'log_of isotherm -n 50 | grep -q no_such_key' || fail "the journal does not name the wrong key: $(log_of isotherm -n 1)"
    local known=$?
    cat $state/good >$settings
    systemctl reload isotherm
    [ $known = 0 ] || return 1
    { is_active isotherm && [ "$(pid_of isotherm)" = "$(cat $state/reload.pid)" ]; } || fail "a file with an error ended the service"
}
# From the signal until systemd has the service active again, with another process.
back_after() { # back_after SIGNAL
    local before began pid now
    before=$(pid_of isotherm)
    systemctl reset-failed isotherm # the limit of starts counts all checks together
    began=$(cut -d' ' -f1 /proc/uptime)
    kill -"$1" "$before"
    within 60 eval 'pid=$(pid_of isotherm); is_active isotherm && [ "$pid" != 0 ] && [ "$pid" != '"$before"' ]' ||
        { log_of isotherm -n 20; fail "not back after 60 s: $(property isotherm ActiveState), result $(property isotherm Result)"; } || return
    now=$(cut -d' ' -f1 /proc/uptime)
    note "back after $(perl -e 'printf "%.1f", $ARGV[1] - $ARGV[0]' "$began" "$now") s, NRestarts=$(property isotherm NRestarts), WatchdogUSec=$(property isotherm WatchdogUSec)"
    perl -e 'exit !($ARGV[1] - $ARGV[0] <= 10)' "$began" "$now" || fail "back only after $(perl -e 'printf "%.1f", $ARGV[1] - $ARGV[0]' "$began" "$now") s"
}
restarts() {
    ready || return
    check "reload keeps the process and takes a setting" reload
    check "a reload for which watching starts over keeps it, too" restarting_reload
    check "a wrong setting is reported, and nothing changes" bad_reload
    check "killed (SIGKILL), it is back within 10 s" back_after KILL
    check "stopped (SIGSTOP), the watchdog has it back within 10 s" back_after STOP
    check "isotherm status answers again" status_answers
}

# --- sandbox: doctor under the unit's own settings, with all capabilities of the unit and with one fewer

# A copy of the unit that runs another command once. Its folders are not the service's, which would be removed with it.
copy_unit() { # copy_unit "CAPABILITIES" COMMAND...
    local capabilities=$1 at=/run/systemd/system/isotherm-copy.service
    shift
    rm -f $state/copy.out
    # The whole of it, drop-ins too. Of the start, the command alone is replaced.
    systemctl cat isotherm.service | grep -vE '^(Type|ExecStart|ExecStartPre|ExecStartPost|ExecReload|ExecStop|ExecStopPost|WatchdogSec|Restart|RestartSec|NotifyAccess|RuntimeDirectory|RuntimeDirectoryPreserve|StandardOutput|StandardError|CapabilityBoundingSet|Sockets|Also|Alias|WantedBy)=' >$at
    cat >>$at <<UNIT
[Service]
Type=oneshot
ExecStart=$*
StandardOutput=file:$state/copy.out
StandardError=append:$state/copy.out
CapabilityBoundingSet=
CapabilityBoundingSet=$capabilities
UNIT
    systemctl daemon-reload
    systemctl start isotherm-copy.service
}
capabilities() { property isotherm CapabilityBoundingSet | tr '[:lower:]' '[:upper:]'; }
doctor_passes() {
    local wrong
    copy_unit "$(capabilities)" /usr/bin/isotherm doctor --json || { cat $state/copy.out; fail "isotherm doctor failed: $(log_of isotherm-copy -n 1)"; } || return
    cp $state/copy.out $state/doctor.json
    wrong=$(jq -r '.findings[] | select(.name == "page-table" or .name == "madv-cold" or .name == "collapse") | select(.state != "present") | .name + ": " + .detail' $state/doctor.json)
    note "source $(jq -r .source $state/doctor.json), with $(capabilities)"
    [ -z "$wrong" ] || fail "$wrong"
}
# What the doctor finds missing, of what it found before.
named_by_doctor() { # named_by_doctor CAPABILITY
    copy_unit "$less" /usr/bin/isotherm doctor --json
    jq -r --slurpfile all $state/doctor.json '. as $now | $all[0].findings[] | select(.state == "present") | .name as $n | $now.findings[]
        | select(.name == $n and .state != "present") | .name + ": " + .detail' $state/copy.out | grep -w "$1"
}
# What the service itself says when it starts without.
named_by_service() { # named_by_service CAPABILITY
    local at=/run/systemd/system/isotherm.service.d
    mkdir -p $at
    printf '[Service]\nCapabilityBoundingSet=\nCapabilityBoundingSet=%s\nRestart=no\n' "$less" >$at/lab.conf
    systemctl daemon-reload
    journalctl -q --no-pager -n 0 --show-cursor | sed -n 's/^-- cursor: //p' >$state/cursor
    systemctl restart isotherm.service
    sleep 2
    log_of isotherm --after-cursor "$(cat $state/cursor)" | grep -w "$1"
    local found=$?
    rm -r $at
    systemctl daemon-reload
    systemctl reset-failed isotherm.service
    return $found
}
is_missed() { # is_missed CAPABILITY
    local less by
    less=$(capabilities | tr ' ' '\n' | grep -vx "$1" | xargs)
    if by=$(named_by_service "$1"); then
        note "the service: $(head -n 1 <<<"$by" | cut -c -160)"
    elif by=$(named_by_doctor "$1"); then
        note "doctor: $(head -n 1 <<<"$by" | cut -c -160)"
    else
        cat $state/copy.out
        fail "without $1 neither the service nor doctor names it: the unit grants what nothing misses, or its absence goes unreported"
    fi
}
exposure() { # exposure UNIT
    local line
    line=$(systemd-analyze security --no-pager "$1.service" | tail -n 1)
    note "$(grep -oE '[0-9]+\.[0-9]+' <<<"$line" | head -n 1)"
    perl -e 'exit !($ARGV[0] <= $ARGV[1])' "$(cat $state/note)" "${max_exposure[$1]}" || fail "$line (at most ${max_exposure[$1]})"
}
# The drop-in that install.md shows for MGLRU.
reads_generations() {
    local at=/run/systemd/system/isotherm.service.d mglru=/sys/kernel/mm/lru_gen/enabled result=0
    [ -e $mglru ] || { note "skipped: needs MGLRU in the kernel"; return 0; }
    echo y >$mglru
    mkdir -p $at
    printf '[Service]\nProtectKernelTunables=no\nExecStart=\nExecStart=%s --hints both\n' "$(systemctl cat isotherm.service | sed -n 's/^ExecStart=//p')" >$at/lab.conf
    systemctl daemon-reload
    systemctl restart isotherm.service
    within 30 status >/dev/null 2>&1 && is_active isotherm || { result=1; log_of isotherm -n 3; }
    rm -r $at
    systemctl daemon-reload
    systemctl reset-failed isotherm.service
    return $result
}
sandbox() {
    ready || return
    local unit capability
    for unit in "${units[@]}"; do
        if installed "$unit"; then check "exposure of $unit.service" exposure "$unit"; fi
    done
    check "doctor passes within the unit" doctor_passes || return
    for capability in $(capabilities); do check "without $capability" is_missed "$capability"; done
    rm -f /run/systemd/system/isotherm-copy.service
    check "with the drop-in for it, generations of MGLRU are read" reads_generations
    systemctl daemon-reload
    systemctl restart isotherm.service
    check "with all of them, isotherm.service is active again" service_is_active isotherm
}

# --- removal

remove_package() { # remove_package remove|purge
    apt-get "$1" -y -q $package 2>&1 | tee $state/removal.out
    [ "${PIPESTATUS[0]}" -eq 0 ] || fail "apt-get $1 failed: $(tail -n 1 $state/check.out)"
}
nothing_runs() {
    local left
    left=$(pgrep -a isotherm)
    [ -z "$left" ] || fail "still running: $left"
}
settings_stay() { [ -f $settings ] || fail "removal without purge deleted $settings"; }
no_unit_failed() {
    local left
    left=$(systemctl list-units --all --no-legend --plain 'isotherm*' | grep -v isotherm-copy)
    [ -z "$left" ] || fail "$left"
}
# Services are enabled at the first installation, and then as the administrator leaves them, also over a removal.
comes_back() {
    install_package "$new" || return
    service_is_active isotherm || return
    [ "$(systemctl is-enabled isotherm)" = enabled ] || fail "isotherm.service is $(systemctl is-enabled isotherm)" || return
    [ "$(systemctl is-enabled isotherm-serve)" = disabled ] && ! is_active isotherm-serve ||
        fail "isotherm-serve.service was disabled, and is $(systemctl is-enabled isotherm-serve), $(property isotherm-serve ActiveState)"
}
nothing_left() { # nothing_left NAME
    local left
    systemctl daemon-reload
    machine "$1"
    same_machine before "$1" || return
    # The journal for `isotherm undo` outlives the service, and a removal, but no purge.
    left=$(find /run -maxdepth 1 -name 'isotherm*')
    [ -z "$left" ] || fail "left in /run: $left"
}
# The question of the package, answered before it is asked. Without huge pages of ours it is not asked.
answer_yes() {
    redis_huge_kb >$state/huge
    note "$(cat $state/huge) kB of huge pages in redis-server"
    echo "$package $package/undo boolean true" | debconf-set-selections
}
is_undone() {
    local before after
    before=$(cat $state/huge) after=$(redis_huge_kb)
    note "$before kB of huge pages in redis-server before, $after kB after"
    # Before 6.7 nothing tells which memory is huge: that is said, and the removal goes on.
    if [ "$(printf '%s\n' 6.7 "$(uname -r)" | sort -V | head -n 1)" != 6.7 ]; then
        grep -q 'were not brought back' $state/removal.out || fail "on this kernel nothing can be undone, and the removal has not said so"
    else
        [ "$after" -lt $((before / 4)) ] || fail "$(cat $state/note): $(grep isotherm $state/removal.out | tail -n 1)"
    fi
}
stays_off() {
    systemctl disable --quiet --now isotherm
    apt-get -y -q --reinstall install "$new" >$state/again.out 2>&1 || fail "$(tail -n 1 $state/again.out)" || return
    ! is_active isotherm && ! is_active isotherm-serve || fail "isotherm.service is $(property isotherm ActiveState), isotherm-serve.service $(property isotherm-serve ActiveState)"
}
removal() {
    is_installed || return
    if [ -s /run/isotherm/isotherm.journal ] && [ "$(redis_huge_kb)" -gt 0 ]; then check "undo at removal is answered with yes" answer_yes; fi
    systemctl disable --quiet --now isotherm-serve
    check "remove" remove_package remove || return
    if [ -e $state/huge ]; then check "huge pages are split at removal" is_undone; fi
    check "nothing runs after removal" nothing_runs
    check "settings stay until purge" settings_stay
    check "installed again, services are as they were" comes_back
    check "purge" remove_package purge || return
    check "purge leaves nothing" nothing_left purged
    check "no unit is left, failed or not" no_unit_failed
    check "install on a clean machine" install_package "$new" || return
    check "isotherm.service is active" service_is_active isotherm
    check "a monitor that is disabled stays off when the package is installed again" stays_off
    check "purge at once" remove_package purge
    check "nothing is left, and nothing runs" eval 'nothing_runs && nothing_left again'
}

machine before
for part in "${parts[@]}"; do
    echo "== $part"
    "$part"
done
if [ "$failed" -gt 0 ]; then
    echo "--- the journal of isotherm's units ---"
    journalctl --no-pager -q -o short-monotonic -u 'isotherm*' | tail -n 60
fi
echo "== end"
[ "$failed" -eq 0 ]
