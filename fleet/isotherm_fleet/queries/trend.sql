-- name: trend
-- about: by service and day, p95 of the working set of ten minutes
-- tables: hosts, wss
-- window: 28d
--
-- Percentiles as in `wss`. Days are in UTC. `thin_intervals` have processes for less than half of the five minutes; `times` counts the intervals of
-- the day of which there is any row, of 288.
with thin_hosts as (
    select host, time_s, max(covered_ns) as covered_ns
    from hosts
    group by host, time_s
    having max(covered_ns) < 297000000000
),
samples as (
    select
        w.service,
        w.time_s - w.time_s % 86400 as day_time_s,
        cast(floor(w.covered_ns / 1e9) as bigint) as seconds,
        w.time_s,
        case
            when w.covered_ns > 0 and w.covered_ns < coalesce(h.covered_ns, 300000000000)
                then least(
                    cast(floor(w.wss_10m_bytes * (coalesce(h.covered_ns, 300000000000) * 1e0) / w.covered_ns) as bigint),
                    greatest(w.wss_10m_bytes, w.wss_10m_max_bytes)
                )
            else w.wss_10m_bytes
        end as bytes
    from wss as w
    left join thin_hosts as h on w.host = h.host and w.time_s = h.time_s
),
sized as (
    select
        service,
        day_time_s,
        seconds,
        bytes,
        case
            when bytes < 16777216 then 4096
            when bytes < 67108864 then 16384
            when bytes < 268435456 then 65536
            when bytes < 1073741824 then 262144
            when bytes < 4294967296 then 1048576
            when bytes < 17179869184 then 4194304
            when bytes < 68719476736 then 16777216
            when bytes < 274877906944 then 67108864
            when bytes < 1099511627776 then 268435456
            else 1073741824
        end as step
    from samples
),
steps as (
    select
        service,
        day_time_s,
        (bytes + step - 1) - (bytes + step - 1) % step as bytes,
        cast(sum(seconds) as bigint) as seconds,
        count(*) as intervals,
        sum(case when seconds < 150 then 1 else 0 end) as thin_intervals
    from sized
    group by service, day_time_s, (bytes + step - 1) - (bytes + step - 1) % step
),
times as (
    select
        service,
        day_time_s,
        count(distinct time_s) as times
    from samples
    group by service, day_time_s
),
running as (
    select
        service,
        day_time_s,
        bytes,
        intervals,
        thin_intervals,
        cast(sum(seconds) over (
            partition by service, day_time_s order by bytes rows between unbounded preceding and current row
        ) as bigint) as seconds_upto,
        cast(sum(seconds) over (partition by service, day_time_s) as bigint) as seconds_all
    from steps
)
select
    r.service,
    r.day_time_s,
    cast(sum(r.intervals) as bigint) as intervals,
    cast(sum(r.thin_intervals) as bigint) as thin_intervals,
    max(t.times) as times,
    min(case when r.seconds_upto * 100 >= r.seconds_all * 95 then r.bytes end) as p95_bytes
from running as r
inner join times as t on r.service = t.service and r.day_time_s = t.day_time_s
group by r.service, r.day_time_s
order by r.service, r.day_time_s
