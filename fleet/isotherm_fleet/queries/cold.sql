-- name: cold
-- about: cold memory by age, and what would come back in a minute if it left at that age
-- tables: hosts, wss, idle, refaults
-- window: 7d
-- sums: yes
--
-- Means over the intervals of each host, added up over hosts. A row is an age: cold_bytes is idle for that long or longer; refault_bytes_per_min
-- was found accessed after so long, and would have come back had it left at that age. The rate is in parts per million of the working set of one
-- minute, each minute: 2,000 is 0.2%.
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
        cast(sum(floor(pages / intervals)) as bigint) as wss_pages,
        cast(sum(floor(resident / intervals)) as bigint) as resident_pages
    from (
        select
            host,
            cast(sum(floor(wss_1m_bytes / 4096)) as bigint) as pages,
            cast(sum(floor(resident_bytes / 4096)) as bigint) as resident
        from wss
        group by host
    ) as by_host
    inner join spans on by_host.host = spans.host
),
idle_codes as (
    select code, cast(sum(floor(pages / intervals)) as bigint) as pages
    from (
        select host, code, cast(sum(pages) as bigint) as pages from idle group by host, code
    ) as by_host
    inner join spans on by_host.host = spans.host
    group by code
),
refault_codes as (
    -- Thousandths of a page a minute: a rare refault must not be rounded to none. By the time that was watched: what came back besides was not seen.
    select code, cast(sum(floor(pages * 60000 / covered_s)) as bigint) as millipages_per_min
    from (
        select host, code, cast(sum(pages) as bigint) as pages from refaults group by host, code
    ) as by_host
    inner join spans on by_host.host = spans.host and covered_s > 0
    group by code
),
cold_at as (
    select a.age_ms, cast(coalesce(sum(i.pages), 0) as bigint) as pages
    from ages as a
    left join idle_codes as i on i.code >= a.code
    group by a.age_ms
),
back_at as (
    select a.age_ms, cast(coalesce(sum(r.millipages_per_min), 0) as bigint) as millipages
    from ages as a
    left join refault_codes as r on r.code >= a.code
    group by a.age_ms
)
select
    c.age_ms,
    c.pages * 4096 as cold_bytes,
    case
        when w.resident_pages > 0 then cast(floor(c.pages * 1000e0 / w.resident_pages) as bigint) else 0
    end as cold_permille,
    cast(floor(b.millipages * 4096e0 / 1000e0) as bigint) as refault_bytes_per_min,
    case
        when w.wss_pages > 0 then cast(floor(b.millipages * 1000e0 / w.wss_pages) as bigint) else 0
    end as refault_ppm_per_min
from cold_at as c
inner join back_at as b on c.age_ms = b.age_ms
cross join working as w
order by c.age_ms
