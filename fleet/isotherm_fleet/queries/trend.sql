-- name: trend
-- about: by service and day, p95 of the working set of ten minutes
-- tables: wss
-- window: 28d
--
-- Percentiles as in `wss`. Days are in UTC. `thin_intervals` have processes for less than half of the five minutes.
with samples as (
    select
        service,
        time_s - time_s % 86400 as day_time_s,
        cast(floor(covered_ns / 1e9) as bigint) as seconds,
        wss_10m_bytes as bytes
    from wss
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
    service,
    day_time_s,
    cast(sum(intervals) as bigint) as intervals,
    cast(sum(thin_intervals) as bigint) as thin_intervals,
    min(case when seconds_upto * 100 >= seconds_all * 95 then bytes end) as p95_bytes
from running
group by service, day_time_s
order by service, day_time_s
