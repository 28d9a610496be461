-- name: tier
-- about: by service, memory that fits a slower tier at a promotion rate, and the age at which it would move
-- tables: hosts, wss, idle, refaults
-- window: 7d
-- sums: yes
-- param: max_refault_ppm bigint 2000 refaults in a minute, parts per million of the working set of one minute (2000 is 0.2%)
--
-- The age is the shortest of the scale's doublings, from 1 s on, at which the promotion rate of the service stays within the target. Means are
-- over the intervals of each host, as in `cold`.
with ages as (
    select code, cast(age_ms as bigint) as age_ms from (values
        (82, 1024), (90, 2048), (98, 4096), (106, 8192), (114, 16384), (122, 32768), (130, 65536), (138, 131072),
        (146, 262144), (154, 524288), (162, 1048576), (170, 2097152), (178, 4194304), (186, 8388608), (194, 16777216),
        (202, 33554432), (210, 67108864), (218, 134217728)
    ) as a (code, age_ms)
),
spans as (
    select
        host,
        cast(sum(times) as bigint) as intervals,
        cast(floor(sum(covered_ns) / 1000000000) as bigint) as covered_s
    from host_times
    group by host
),
working as (
    select
        service,
        count(*) as hosts,
        cast(sum(floor(pages / intervals)) as bigint) as wss_pages,
        cast(sum(floor(resident / intervals)) as bigint) as resident_pages
    from (
        select
            service,
            host,
            cast(sum(floor(wss_1m_bytes / 4096)) as bigint) as pages,
            cast(sum(floor(resident_bytes / 4096)) as bigint) as resident
        from wss
        group by service, host
    ) as by_host
    inner join spans on by_host.host = spans.host
    group by service
),
idle_codes as (
    select service, code, cast(sum(floor(pages / intervals)) as bigint) as pages
    from (
        select service, host, code, cast(sum(pages) as bigint) as pages from idle group by service, host, code
    ) as by_host
    inner join spans on by_host.host = spans.host
    group by service, code
),
refault_codes as (
    select service, code, cast(sum(floor(pages * 60000 / covered_s)) as bigint) as millipages_per_min
    from (
        select service, host, code, cast(sum(pages) as bigint) as pages from refaults group by service, host, code
    ) as by_host
    inner join spans on by_host.host = spans.host and covered_s > 0
    group by service, code
),
cold_at as (
    select i.service, a.age_ms, cast(sum(i.pages) as bigint) as pages
    from ages as a
    inner join idle_codes as i on i.code >= a.code
    group by i.service, a.age_ms
),
back_at as (
    select r.service, a.age_ms, cast(sum(r.millipages_per_min) as bigint) as millipages
    from ages as a
    inner join refault_codes as r on r.code >= a.code
    group by r.service, a.age_ms
),
within as (
    select
        c.service,
        c.age_ms,
        c.pages,
        coalesce(b.millipages, 0) as millipages,
        row_number() over (partition by c.service order by c.age_ms) as place
    from cold_at as c
    inner join working as w on c.service = w.service
    left join back_at as b on c.service = b.service and c.age_ms = b.age_ms
    where coalesce(b.millipages, 0) * 1000e0 <= w.wss_pages * cast(:max_refault_ppm as double)
)
select
    w.service,
    w.hosts,
    w.resident_pages * 4096 as resident_mean_bytes,
    w.wss_pages * 4096 as wss_1m_mean_bytes,
    f.age_ms,
    coalesce(f.pages, 0) * 4096 as fits_bytes,
    case
        when w.resident_pages > 0 then cast(floor(coalesce(f.pages, 0) * 1000e0 / w.resident_pages) as bigint) else 0
    end as fits_permille,
    case
        when w.wss_pages > 0 then cast(floor(coalesce(f.millipages, 0) * 1000e0 / w.wss_pages) as bigint) else 0
    end as refault_ppm_per_min
from working as w
left join (select * from within where place = 1) as f on w.service = f.service
order by coalesce(f.pages, 0) desc, w.service
