-- name: wss
-- about: working set by service: p50, p95 and p99 next to limit and request
-- tables: hosts, wss
-- window: 7d
-- param: age 10s|1m|10m|1h 10m memory accessed within this time
--
-- A sample is a row: a cgroup on a host for five minutes, with the seconds in which there were processes as its weight. Rows are means over the time
-- that the host covered, so that of a cgroup with processes for a part of it is scaled to that part, up to the maximum that was seen. The percentile p is the
-- smallest value that has p percent of the weight at or below it. Values are rounded up to a step of at most 0.1% of the value (whole pages up
-- to 16 MiB), which keeps the table of steps small however many samples there are. `unlimited` counts instances without a limit. `cannot_leave_bytes` is the most
-- of an instance of which nothing was in swap: its anonymous memory, or all of it where that is not known.
with thin_hosts as (
    -- Most hosts cover most intervals, but for a few milliseconds: what is joined below is small.
    select host, time_s, max(covered_ns) as covered_ns
    from hosts
    group by host, time_s
    having max(covered_ns) < 297000000000
),
by_age as (
    select
        service,
        host,
        cgroup,
        time_s,
        covered_ns,
        resident_bytes,
        resident_max_bytes,
        unmeasured_bytes,
        cgroup_anon_bytes,
        swapped_bytes,
        limit_bytes,
        request_bytes,
        case :age
            when '10s' then wss_10s_bytes
            when '1m' then wss_1m_bytes
            when '10m' then wss_10m_bytes
            when '1h' then wss_1h_bytes
        end as mean_bytes,
        case :age
            when '10s' then wss_10s_max_bytes
            when '1m' then wss_1m_max_bytes
            when '10m' then wss_10m_max_bytes
            when '1h' then wss_1h_max_bytes
        end as max_bytes
    from wss
),
samples as (
    select
        w.service,
        cast(floor(w.covered_ns / 1e9) as bigint) as seconds,
        case
            when w.covered_ns > 0 and w.covered_ns < coalesce(h.covered_ns, 300000000000)
                then least(
                    cast(floor(w.mean_bytes * (coalesce(h.covered_ns, 300000000000) * 1e0) / w.covered_ns) as bigint),
                    greatest(w.mean_bytes, w.max_bytes)
                )
            else w.mean_bytes
        end as bytes
    from by_age as w
    left join thin_hosts as h on w.host = h.host and w.time_s = h.time_s
),
sized as (
    select
        service,
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
    where bytes is not null
),
steps as (
    select
        service,
        (bytes + step - 1) - (bytes + step - 1) % step as bytes,
        cast(sum(seconds) as bigint) as seconds
    from sized
    group by service, (bytes + step - 1) - (bytes + step - 1) % step
),
running as (
    select
        service,
        bytes,
        cast(sum(seconds) over (
            partition by service order by bytes rows between unbounded preceding and current row
        ) as bigint) as seconds_upto,
        cast(sum(seconds) over (partition by service) as bigint) as seconds_all
    from steps
),
percentiles as (
    select
        service,
        min(case when seconds_upto * 100 >= seconds_all * 50 then bytes end) as p50_bytes,
        min(case when seconds_upto * 100 >= seconds_all * 95 then bytes end) as p95_bytes,
        min(case when seconds_upto * 100 >= seconds_all * 99 then bytes end) as p99_bytes
    from running
    group by service
),
groups as (
    select
        service,
        host,
        cgroup,
        count(*) as intervals,
        cast(sum(floor(covered_ns / 1e9)) as bigint) as seconds,
        max(max_bytes) as max_bytes,
        max(resident_max_bytes) as resident_max_bytes,
        max(cgroup_anon_bytes) as anon_max_bytes,
        max(swapped_bytes) as swapped_max_bytes,
        cast(sum(floor(resident_bytes / 4096)) as bigint) as resident_pages,
        cast(sum(floor(unmeasured_bytes / 4096)) as bigint) as unmeasured_pages,
        min(limit_bytes) as limit_min_bytes,
        max(limit_bytes) as limit_max_bytes,
        min(request_bytes) as request_min_bytes,
        max(request_bytes) as request_max_bytes
    from by_age
    group by service, host, cgroup
),
totals as (
    select
        service,
        count(distinct host) as hosts,
        count(*) as instances,
        cast(sum(intervals) as bigint) as intervals,
        cast(floor(sum(seconds) / 3600) as bigint) as hours,
        max(max_bytes) as max_bytes,
        max(resident_max_bytes) as resident_max_bytes,
        max(anon_max_bytes) as anon_max_bytes,
        max(swapped_max_bytes) as swapped_max_bytes,
        max(case
            when coalesce(swapped_max_bytes, 0) = 0 then coalesce(anon_max_bytes, resident_max_bytes)
        end) as cannot_leave_bytes,
        cast(sum(case when limit_max_bytes is null then 1 else 0 end) as bigint) as unlimited,
        cast(sum(resident_pages) as bigint) as resident_pages,
        cast(sum(unmeasured_pages) as bigint) as unmeasured_pages,
        min(limit_min_bytes) as limit_min_bytes,
        max(limit_max_bytes) as limit_max_bytes,
        min(request_min_bytes) as request_min_bytes,
        max(request_max_bytes) as request_max_bytes
    from groups
    group by service
)
select
    t.service,
    t.hosts,
    t.instances,
    t.hours,
    cast(floor(t.resident_pages * 4096e0 / t.intervals) as bigint) as resident_mean_bytes,
    p.p50_bytes,
    p.p95_bytes,
    p.p99_bytes,
    t.max_bytes,
    t.resident_max_bytes,
    t.anon_max_bytes,
    t.swapped_max_bytes,
    t.cannot_leave_bytes,
    t.request_min_bytes,
    t.request_max_bytes,
    t.limit_min_bytes,
    t.limit_max_bytes,
    t.unlimited,
    case
        when t.limit_min_bytes > 0 then cast(floor(p.p99_bytes * 1000e0 / t.limit_min_bytes) as bigint)
    end as p99_of_limit_permille,
    case
        when t.resident_pages > 0 then cast(floor(t.unmeasured_pages * 1000e0 / t.resident_pages) as bigint) else 0
    end as unmeasured_permille
from totals as t
inner join percentiles as p on t.service = p.service
order by p.p95_bytes desc, t.service
