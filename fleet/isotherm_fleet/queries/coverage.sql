-- name: coverage
-- about: what each host has delivered: gaps, thin intervals, lost snapshots, clock skew, cloned machine ids
-- tables: hosts
-- window: 7d
-- param: thin_s bigint 150 an interval with less covered time than this is thin
-- param: max_skew_ms bigint 1000 a greater step of the clock within an interval is flagged
--
-- `missing` counts intervals between the first and the last of a host; `absent` those before and after, in which other hosts were there. Cloned: another host, or another
-- boot of this host, has the same machine id in the same two intervals or more; of two boots, a reboot shares only one.
with bounded as (
    select
        host,
        hostname,
        machine_id,
        boot_id,
        time_s,
        covered_ns,
        lost_snapshots,
        read_errors,
        abs(clock_skew_ns) as skew_ns
    from hosts
),
intervals as (
    select
        host,
        time_s,
        cast(sum(covered_ns) as bigint) as covered_ns,
        lag(time_s) over (partition by host order by time_s) as before_s
    from bounded
    group by host, time_s
),
per_host as (
    select
        host,
        count(*) as intervals,
        min(time_s) as first_time_s,
        max(time_s) as last_time_s,
        sum(case when time_s - before_s > 300 then 1 else 0 end) as gaps,
        max(case when time_s - before_s > 300 then time_s - before_s - 300 else 0 end) as longest_gap_s,
        sum(case when covered_ns < :thin_s * 1000000000 then 1 else 0 end) as thin
    from intervals
    group by host
),
facts as (
    select
        host,
        max(hostname) as hostname,
        count(distinct boot_id) as boots,
        cast(sum(lost_snapshots) as bigint) as lost_snapshots,
        cast(sum(read_errors) as bigint) as read_errors,
        cast(floor(max(skew_ns) / 1e6) as bigint) as max_skew_ms
    from bounded
    group by host
),
machines as (
    select
        machine_id,
        time_s,
        min(boot_id) as first_boot,
        max(boot_id) as last_boot,
        count(distinct boot_id) as boots
    from bounded
    where machine_id <> ''
    group by machine_id, time_s
),
cloned_ids as (
    select machine_id, count(*) as intervals
    from machines
    where boots > 1
    group by machine_id, first_boot, last_boot
    having count(*) > 1
),
clones as (
    select distinct b.host
    from bounded as b
    inner join (select distinct machine_id from cloned_ids) as c on b.machine_id = c.machine_id
),
counted as (
    select
        p.host,
        f.hostname,
        p.first_time_s,
        p.last_time_s,
        p.intervals,
        cast(floor((p.last_time_s - p.first_time_s) / 300) as bigint) + 1 - p.intervals as missing,
        cast(floor((a.last_time_s - a.first_time_s - p.last_time_s + p.first_time_s) / 300) as bigint) as absent,
        cast(p.gaps as bigint) as gaps,
        cast(p.longest_gap_s as bigint) as longest_gap_s,
        cast(p.thin as bigint) as thin,
        f.lost_snapshots,
        f.read_errors,
        f.max_skew_ms,
        f.boots,
        case when c.host is not null then 1 else 0 end as cloned
    from per_host as p
    inner join facts as f on p.host = f.host
    cross join (select min(first_time_s) as first_time_s, max(last_time_s) as last_time_s from per_host) as a
    left join clones as c on p.host = c.host
)
select
    host,
    hostname,
    first_time_s,
    last_time_s,
    intervals,
    missing,
    absent,
    gaps,
    longest_gap_s,
    thin,
    lost_snapshots,
    read_errors,
    max_skew_ms,
    boots,
    trim(concat(
        case when gaps > 0 then 'gaps ' else '' end,
        case when absent > 0 then 'absent ' else '' end,
        case when thin * 20 > intervals then 'thin ' else '' end,
        case when lost_snapshots > 0 then 'lost ' else '' end,
        case when max_skew_ms > :max_skew_ms then 'skew ' else '' end,
        case when cloned = 1 then 'cloned ' else '' end
    )) as flags
from counted
order by cloned desc, missing + absent desc, thin desc, host
