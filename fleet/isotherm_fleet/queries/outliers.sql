-- name: outliers
-- about: hosts on which a service's working set is far from its median over hosts
-- tables: hosts, wss
-- window: 7d
-- param: min_hosts bigint 5 services on fewer hosts are skipped
-- param: min_score bigint 50 tenths of a median deviation from which on a host is listed
--
-- The value of a host is the mean of a service's working set of ten minutes over the rows that it has, in pages. The score is its distance from the
-- median, in tenths of the median distance; a median distance below 1% of the median counts as 1%, so that a service that is alike everywhere
-- does not list hosts for a few pages. Medians are lower medians: of an even number of values the lower of the two in the middle.
with per_host as (
    select
        w.service,
        w.host,
        cast(
            floor(sum(floor(floor(w.wss_10m_bytes / 4096) / coalesce(r.times, 1))) / count(distinct w.time_s)) as bigint
        ) as pages
    from wss as w
    left join host_times as r on w.host = r.host and w.time_s = r.time_s
    group by w.service, w.host
),
ranked as (
    select
        service,
        host,
        pages,
        row_number() over (partition by service order by pages, host) as place,
        count(*) over (partition by service) as hosts
    from per_host
),
medians as (
    select service, hosts, pages as median_pages
    from ranked
    where hosts >= :min_hosts and place = cast(floor((hosts + 1) / 2) as bigint)
),
distances as (
    select
        r.service,
        r.host,
        r.pages,
        m.median_pages,
        m.hosts,
        abs(r.pages - m.median_pages) as distance,
        row_number() over (partition by r.service order by abs(r.pages - m.median_pages), r.host) as place
    from ranked as r
    inner join medians as m on r.service = m.service
),
spreads as (
    select
        service,
        case
            when distance > floor(median_pages / 100) then distance
            when median_pages >= 100 then cast(floor(median_pages / 100) as bigint)
            else 1
        end as spread_pages
    from distances
    where place = cast(floor((hosts + 1) / 2) as bigint)
),
names as (
    select host, max(hostname) as hostname from hosts group by host
)
select
    d.service,
    d.host,
    coalesce(n.hostname, '') as hostname,
    d.hosts,
    d.pages * 4096 as wss_mean_bytes,
    d.median_pages * 4096 as median_bytes,
    s.spread_pages * 4096 as spread_bytes,
    cast(floor(d.distance * 10e0 / s.spread_pages) as bigint) as score
from distances as d
inner join spreads as s on d.service = s.service
left join names as n on d.host = n.host
where cast(floor(d.distance * 10e0 / s.spread_pages) as bigint) >= :min_score
order by score desc, d.service, d.host
