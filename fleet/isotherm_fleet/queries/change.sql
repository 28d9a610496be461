-- name: change
-- about: by service, the working set of the last days against that of as many days before
-- tables: hosts, wss
-- window: 2 * days
-- param: days bigint 7 length of each of the two periods, which end at the end of the window
--
-- The value of a period is the mean over hosts of the mean of a host's working set of ten minutes, in pages, and the number of hosts. So a service
-- that runs on more hosts than before has not changed by that alone. `hours_before` and `hours_now` tell of how much of each period there is any row.
with sides as (
    select
        w.service,
        w.host,
        case when w.time_s >= :until_s - :days * 86400 then 1 else 0 end as is_now,
        w.time_s,
        floor(floor(w.wss_10m_bytes / 4096) / coalesce(r.times, 1)) as pages,
        floor(floor(w.resident_bytes / 4096) / coalesce(r.times, 1)) as resident
    from wss as w
    left join host_times as r on w.host = r.host and w.time_s = r.time_s
    where w.time_s >= :until_s - 2 * :days * 86400
),
per_host as (
    select
        service,
        host,
        is_now,
        cast(floor(sum(pages) / count(distinct time_s)) as bigint) as pages,
        cast(floor(sum(resident) / count(distinct time_s)) as bigint) as resident
    from sides
    group by service, host, is_now
),
per_time as (
    select
        service,
        is_now,
        cast(floor(count(distinct time_s) / 12) as bigint) as hours
    from sides
    group by service, is_now
),
per_side as (
    select
        h.service,
        h.is_now,
        count(*) as hosts,
        max(t.hours) as hours,
        cast(floor(sum(h.pages) / count(*)) as bigint) as pages,
        cast(floor(sum(h.resident) / count(*)) as bigint) as resident
    from per_host as h
    inner join per_time as t on h.service = t.service and h.is_now = t.is_now
    group by h.service, h.is_now
),
both_sides as (
    select
        service,
        max(case when is_now = 0 then hosts end) as hosts_before,
        max(case when is_now = 1 then hosts end) as hosts_now,
        max(case when is_now = 0 then hours end) as hours_before,
        max(case when is_now = 1 then hours end) as hours_now,
        max(case when is_now = 0 then pages end) as before_pages,
        max(case when is_now = 1 then pages end) as now_pages,
        max(case when is_now = 0 then resident end) as before_resident,
        max(case when is_now = 1 then resident end) as now_resident
    from per_side
    group by service
)
select
    service,
    hosts_before,
    hosts_now,
    hours_before,
    hours_now,
    before_pages * 4096 as wss_before_bytes,
    now_pages * 4096 as wss_now_bytes,
    (now_pages - before_pages) * 4096 as wss_change_bytes,
    case
        when before_pages > 0 then cast(floor((now_pages - before_pages) * 1000e0 / before_pages) as bigint)
    end as wss_change_permille,
    (now_resident - before_resident) * 4096 as resident_change_bytes
from both_sides
order by abs(coalesce(now_pages, 0) - coalesce(before_pages, 0)) desc, service
