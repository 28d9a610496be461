-- name: huge
-- about: by service, hot memory that is not on huge pages, and what huge pages would gain
-- tables: hosts, heat, huge_opportunity
-- window: 7d
-- sums: yes
-- param: min_level bigint 16 huge ranges from this level on count as worth a huge page (level 16 is 256 accesses a second)
--
-- Hot is an access interval of up to one second (codes 2 to 82). Only private memory without a file can be put on huge pages by a collapse
-- everywhere: `anon` and `heap`. Means are over the intervals of each host, added up over hosts.
with spans as (
    select host, cast(sum(times) as bigint) as intervals from host_times group by host
),
hot as (
    select
        service,
        count(distinct by_host.host) as hosts,
        cast(sum(floor(pages / intervals)) as bigint) as pages,
        cast(sum(floor(small / intervals)) as bigint) as small_pages,
        cast(sum(floor(small_anon / intervals)) as bigint) as small_anon_pages
    from (
        select
            service,
            host,
            cast(sum(pages) as bigint) as pages,
            cast(sum(pages - huge_pages) as bigint) as small,
            cast(sum(case when kind in ('anon', 'heap') then pages - huge_pages else 0 end) as bigint) as small_anon
        from heat
        where code between 2 and 82
        group by service, host
    ) as by_host
    inner join spans on by_host.host = spans.host
    group by service
),
worth as (
    select service, cast(sum(floor(ranges / intervals)) as bigint) as ranges
    from (
        select service, host, cast(sum(ranges) as bigint) as ranges
        from huge_opportunity
        where level >= :min_level
        group by service, host
    ) as by_host
    inner join spans on by_host.host = spans.host
    group by service
)
select
    h.service,
    h.hosts,
    h.pages * 4096 as hot_bytes,
    h.small_pages * 4096 as hot_small_bytes,
    h.small_anon_pages * 4096 as hot_small_anon_bytes,
    case
        when h.pages > 0 then cast(floor(h.small_pages * 1000e0 / h.pages) as bigint) else 0
    end as hot_small_permille,
    coalesce(w.ranges, 0) as worth_ranges,
    coalesce(w.ranges, 0) * 2097152 as worth_bytes
from hot as h
left join worth as w on h.service = w.service
order by h.small_anon_pages desc, h.service
