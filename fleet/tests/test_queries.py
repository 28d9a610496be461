"""Queries on DuckDB against sums in Python over the rows that were written, and stores that are not as they should
be.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maker import SERVICES, START, Maker, Row, host_key, host_row, schema, wss_values

import isotherm_fleet
from isotherm_fleet import sqlfile, window
from isotherm_fleet.errors import DamagedObject, FleetError, UsageError
from isotherm_fleet.fleet import Fleet, Settings
from isotherm_fleet.store import open_store

PAGE = 4096
LATER_S = (START + dt.timedelta(days=30)).timestamp()


def by(rows: Iterable[Row], *keys: str) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]].append(row)
    return groups


def step_up(size: int) -> int:
    """A size, rounded up as `wss` documents it: whole pages up to 4 MiB, then 1/256 of the next power of four or
    less.
    """
    limit, step = 16 << 20, PAGE
    while size >= limit and step < 1 << 30:
        limit, step = limit * 4, step * 4
    return -(-size // step) * step


def percentile(values: list[int], percent: int) -> int:
    """The smallest value that has so many percent of the values at or below it."""
    ordered = sorted(values)
    return next(value for n, value in enumerate(ordered, 1) if n * 100 >= percent * len(ordered))


def test_working_set_percentiles(made: Maker) -> None:
    answer = {row["service"]: row for row in isotherm_fleet.open(str(made.root)).query("wss").rows()}
    assert answer.keys() == set(SERVICES)
    for service, rows in by(made.rows["wss"], "service").items():
        values = [step_up(row["wss_10m_bytes"]) for row in rows]
        found = answer[service]
        assert [found[f"p{p}_bytes"] for p in (50, 95, 99)] == [percentile(values, p) for p in (50, 95, 99)]
        assert found["max_bytes"] == max(row["wss_10m_max_bytes"] for row in rows)
        assert (found["hosts"], found["instances"], found["hours"]) == (6, 6, len(rows) // 12)
        assert found["cannot_leave_bytes"] == cannot_leave(rows)


def cannot_leave(rows: list[Row]) -> int | None:
    """The most of an instance of which nothing was in swap."""
    held = []
    for instance in {(row["host"], row["cgroup"]) for row in rows}:
        own = [row for row in rows if (row["host"], row["cgroup"]) == instance]
        known = [row["cgroup_anon_bytes"] for row in own if row["cgroup_anon_bytes"] is not None]
        if not any(row["swapped_bytes"] for row in own):
            held.append(max(known or [row["resident_max_bytes"] for row in own]))
    return max(held, default=None)


def test_an_instance_in_swap_says_nothing_about_one_without(maker: Callable[..., Maker]) -> None:
    small = maker()
    for n, (swapped, anon) in enumerate([(4096, 9 * PAGE), (0, 5 * PAGE)]):
        key = {"time": START, "host": host_key(n), "service": "a", "cgroup": "/a"}
        held = {"covered_ns": 300 * 10**9, "swapped_bytes": swapped, "cgroup_anon_bytes": anon}
        small.write("wss", [key | wss_values(100, random.Random(1)) | held], host_key(n), START)
        small.write("hosts", [host_row(n, START, random.Random(1))], host_key(n), START)
    (row,) = isotherm_fleet.open(str(small.root)).query("wss").rows()
    assert (row["cannot_leave_bytes"], row["swapped_max_bytes"]) == (5 * PAGE, 4096)


def test_a_step_is_within_a_thousandth() -> None:
    for size in (1, PAGE, (4 << 20) - 1, 4 << 20, 100 << 20, (1 << 30) + 1, 3 << 40):
        assert size <= step_up(size) <= max(size + PAGE - 1, size * 1.001)


def test_samples_are_weighted_by_covered_time(maker: Callable[..., Maker]) -> None:
    small = maker()
    rows = []
    for n, (pages, seconds) in enumerate([(100, 300), (200, 10)]):
        key = {"time": START + dt.timedelta(minutes=5 * n), "host": host_key(0), "service": "a", "cgroup": "/a"}
        rows.append(key | wss_values(pages, random.Random(1)) | {"covered_ns": seconds * 10**9})
    small.write("wss", rows, host_key(0), START)
    small.write("hosts", [host_row(0, row["time"], random.Random(1)) for row in rows], host_key(0), START)
    # 300 of 310 s are 96.8%: the second value is beyond p95. It is scaled up to its maximum, which is a page more.
    (row,) = isotherm_fleet.open(str(small.root)).query("wss").rows()
    assert [row[f"p{p}_bytes"] // PAGE for p in (50, 95, 99)] == [100, 100, 201]


def test_cold_memory_and_refaults_by_age(made: Maker) -> None:
    answer = {row["age_ms"]: row for row in isotherm_fleet.open(str(made.root)).query("cold").rows()}
    intervals = len({row["time"] for row in made.rows["hosts"]})
    for age_ms, code in ((1024, 82), (65536, 130), (4194304, 178), (134217728, 218)):
        cold = back = 0
        for rows in by(made.rows["idle"], "host", "code").values():
            cold += sum(row["pages"] for row in rows) // intervals if rows[0]["code"] >= code else 0
        for rows in by(made.rows["refaults"], "host", "code").values():
            back += sum(row["pages"] for row in rows) * 200 // intervals if rows[0]["code"] >= code else 0
        assert answer[age_ms]["cold_bytes"] == cold * PAGE
        assert answer[age_ms]["refault_bytes_per_min"] == back * PAGE // 1000


def an_interval(small: Maker, covered_s: int = 300, sequence: int = 0) -> None:
    """An interval of a host with one service, of which so much is covered."""
    key = {"time": START, "host": host_key(0), "service": "a", "cgroup": "/a"}
    rows = {
        "hosts": host_row(0, START, random.Random(1)) | {"covered_ns": covered_s * 10**9},
        "wss": key | wss_values(20_000, random.Random(1)),
        "heat": key | {"kind": "anon", "code": 40, "pages": 4_000, "huge_pages": 0, "swapped_pages": 0},
        "idle": key | {"code": 180, "pages": 9_000},
        "refaults": key | {"code": 180, "pages": 30_000},
        "huge_opportunity": key | {"level": 16, "ranges": 4, "huge_ranges": 0},
    }
    for table, row in rows.items():
        small.write(table, [row], host_key(0), START, sequence)


def test_what_came_back_is_by_the_time_that_was_watched(tmp_path: Path) -> None:
    rates = []
    for covered_s in (300, 150):
        an_interval(Maker(tmp_path / str(covered_s)), covered_s)
        rows = isotherm_fleet.open(str(tmp_path / str(covered_s))).query("cold").rows()
        rates.append(max(row["refault_bytes_per_min"] for row in rows))
    assert rates == [6_000 * PAGE, 12_000 * PAGE]


def test_an_interval_that_a_boot_has_twice_counts_once(tmp_path: Path) -> None:
    once, twice = Maker(tmp_path / "once"), Maker(tmp_path / "twice")
    an_interval(once)
    for sequence in (0, 1):
        an_interval(twice, sequence=sequence)
    for name, params in (("cold", {}), ("tier", {"max_refault_ppm": 10**6}), ("huge", {}), ("change", {"days": 1})):
        rows = [isotherm_fleet.open(str(made.root)).query(name, **params).rows() for made in (once, twice)]
        assert rows[0] == rows[1] and rows[0], name
    outliers = [
        isotherm_fleet.open(str(made.root)).query("outliers", min_hosts=1, min_score=0).rows() for made in (once, twice)
    ]
    assert outliers[0] == outliers[1] and outliers[0][0]["wss_mean_bytes"] == 20_000 * PAGE


def test_hot_memory_on_small_pages(made: Maker) -> None:
    answer = {row["service"]: row for row in isotherm_fleet.open(str(made.root)).query("huge").rows()}
    intervals = len({row["time"] for row in made.rows["hosts"]})
    hot = [row for row in made.rows["heat"] if 2 <= row["code"] <= 82]
    for service in SERVICES:
        pages = anon = 0
        for rows in by((row for row in hot if row["service"] == service), "host").values():
            pages += sum(row["pages"] for row in rows) // intervals
            anon += sum(row["pages"] - row["huge_pages"] for row in rows if row["kind"] == "anon") // intervals
        assert (answer[service]["hot_bytes"], answer[service]["hot_small_anon_bytes"]) == (pages * PAGE, anon * PAGE)


def test_what_fits_a_slower_tier_follows_the_target(made: Maker) -> None:
    fleet = isotherm_fleet.open(str(made.root))
    fits = [
        {row["service"]: row["fits_bytes"] for row in fleet.query("tier", max_refault_ppm=ppm).rows()}
        for ppm in (0, 1000, 10**6)
    ]
    for service in SERVICES:
        assert fits[0][service] <= fits[1][service] <= fits[2][service]
    assert 0 == sum(fits[0].values()) < sum(fits[1].values()) < sum(fits[2].values())
    for row in fleet.query("tier").rows():
        assert row["refault_ppm_per_min"] <= 2000


def test_an_outlier_is_found_and_its_host_is_named(maker: Callable[..., Maker]) -> None:
    small = maker()
    for number in range(7):
        key = {"time": START, "host": host_key(number), "service": "a", "cgroup": "/a"}
        pages = 50_000 if number == 3 else 10_000 + 10 * number
        small.write("wss", [key | wss_values(pages, random.Random(1))], host_key(number), START)
        small.write("hosts", [host_row(number, START, random.Random(1))], host_key(number), START)
    (row,) = isotherm_fleet.open(str(small.root)).query("outliers").rows()
    # Values 10,000 to 10,060 without 10,030; the median is 10,040, 1% of it 100 pages, and 39,960 is 399.6 of that.
    assert (row["hostname"], row["median_bytes"], row["score"]) == ("node-3", 10_040 * PAGE, 3996)


def test_change_compares_two_periods_per_host(maker: Callable[..., Maker]) -> None:
    small = maker()
    for day, hosts, pages in ((0, 2, 1000), (1, 4, 1500)):
        time = START + dt.timedelta(days=day, hours=23, minutes=55)
        for number in range(hosts):
            key = {"time": time, "host": host_key(number), "service": "a", "cgroup": "/a"}
            small.write("wss", [key | wss_values(pages, random.Random(1))], host_key(number), time)
            small.write("hosts", [host_row(number, time, random.Random(1))], host_key(number), time)
    (row,) = isotherm_fleet.open(str(small.root)).query("change", days=1).rows()
    assert (row["hosts_before"], row["hosts_now"], row["wss_change_permille"]) == (2, 4, 500)


def test_change_looks_back_for_both_periods_and_tells_how_much_of_them_there_is(maker: Callable[..., Maker]) -> None:
    small = maker()
    for day, pages in ((0, 1000), (13, 1000), (14, 2000), (27, 2000)):
        for hour in range(1 + day // 14):
            time = START + dt.timedelta(days=day, hours=23 - hour)
            rows = [
                {"time": time + dt.timedelta(minutes=5 * n), "host": host_key(0), "service": "a", "cgroup": "/a"}
                | wss_values(pages, random.Random(1))
                for n in range(12)
            ]
            small.write("wss", rows, host_key(0), time)
            small.write("hosts", [host_row(0, time, random.Random(1))], host_key(0), time)
    (row,) = isotherm_fleet.open(str(small.root), now=lambda: LATER_S).query("change", days=14).rows()
    assert (row["wss_change_permille"], row["hours_before"], row["hours_now"]) == (1000, 2, 4)


def test_a_row_of_a_part_of_an_interval_is_scaled_up_to_its_maximum(maker: Callable[..., Maker]) -> None:
    small = maker()
    for number, (covered, most) in enumerate(((300, 9000), (150, 2500), (150, 1200), (0, 1500))):
        key = {"time": START, "host": host_key(0), "service": f"s{number}", "cgroup": "/a"}
        values = wss_values(1000, random.Random(1)) | {"covered_ns": covered * 10**9}
        values |= {"wss_10m_max_bytes": most * PAGE, "wss_1h_bytes": 7 * PAGE, "wss_1h_max_bytes": 8 * PAGE}
        small.write("wss", [key | values], host_key(0), START, number)
    small.write("hosts", [host_row(0, START, random.Random(1))], host_key(0), START)
    fleet = isotherm_fleet.open(str(small.root))
    found = {row["service"]: row["p95_bytes"] // PAGE for row in fleet.query("wss").rows()}
    assert found == {"s0": 1000, "s1": 2000, "s2": 1200, "s3": 1000}
    assert [row["p95_bytes"] // PAGE for row in fleet.query("trend", service="s1").rows()] == [2000]
    hour = fleet.query("wss", service="s0", age="1h").rows()[0]
    assert (hour["p95_bytes"], hour["max_bytes"]) == (7 * PAGE, 8 * PAGE), "the maximum of that age"


def test_a_row_is_scaled_to_what_its_host_covered(maker: Callable[..., Maker]) -> None:
    small = maker()
    small.write("hosts", [host_row(0, START, random.Random(1)) | {"covered_ns": 150 * 10**9}], host_key(0), START)
    for service, covered in (("all", 150), ("half", 75)):
        key = {"time": START, "host": host_key(0), "service": service, "cgroup": f"/{service}"}
        values = wss_values(1000, random.Random(1)) | {"covered_ns": covered * 10**9, "wss_10m_max_bytes": 9000 * PAGE}
        small.write("wss", [key | values], host_key(0), START, covered)
    fleet = isotherm_fleet.open(str(small.root))
    for query in ("wss", "trend"):
        found = {row["service"]: row["p95_bytes"] // PAGE for row in fleet.query(query).rows()}
        assert found == {"all": 1000, "half": 2000}, query


def test_instances_without_a_limit_are_counted(maker: Callable[..., Maker]) -> None:
    small = maker()
    for number, limit in enumerate((None, 1 << 30, None)):
        key = {"time": START, "host": host_key(number), "service": "a", "cgroup": "/a"}
        row = key | wss_values(1000, random.Random(1)) | {"limit_bytes": limit}
        small.write("wss", [row], host_key(number), START)
        small.write("hosts", [host_row(number, START, random.Random(1))], host_key(number), START)
    (found,) = isotherm_fleet.open(str(small.root)).query("wss").rows()
    assert (found["unlimited"], found["limit_min_bytes"], found["instances"]) == (2, 1 << 30, 3)


def test_a_clock_that_is_ahead_does_not_move_the_window_of_others(maker: Callable[..., Maker]) -> None:
    small = maker()
    for number, time in ((0, START), (1, START + dt.timedelta(hours=30))):
        key = {"time": time, "host": host_key(number), "service": "a", "cgroup": "/a"}
        small.write("wss", [key | wss_values(1000, random.Random(1))], host_key(number), time)
        small.write("hosts", [host_row(number, time, random.Random(1))], host_key(number), time)
    now_s = START.timestamp() + 1200
    fleet = isotherm_fleet.open(str(small.root), now=lambda: now_s)
    assert fleet.newest_s() == START.timestamp() + 3600
    assert [row["hosts"] for row in fleet.query("wss", since="1h").rows()] == [1]


def coverage(small: Maker) -> dict[str, Row]:
    return {row["hostname"]: row for row in isotherm_fleet.open(str(small.root)).query("coverage").rows()}


def test_coverage_finds_gaps_thin_intervals_skew_and_clones(maker: Callable[..., Maker]) -> None:
    small = maker()
    faults: dict[int, dict[int, Row]] = {
        1: {n: {"covered_ns": 10**9} for n in range(4)},
        2: {5: {"clock_skew_ns": -2 * 10**9}},
        3: {n: {"machine_id": "machine-0"} for n in range(12)},
        4: {7: {"lost_snapshots": 3}},
        5: {n: {"boot_id": "second"} for n in range(6, 12)},
    }
    for number in range(7):
        rows = [host_row(number, START + dt.timedelta(minutes=5 * n), random.Random(1)) for n in range(12)]
        rows = [row | faults.get(number, {}).get(n, {}) for n, row in enumerate(rows)]
        if number == 6:
            del rows[3:7], rows[-1]
        small.write("hosts", rows, host_key(number), START)
    found = coverage(small)
    flags = {name: row["flags"] for name, row in found.items()}
    assert flags == {
        "node-0": "cloned",
        "node-1": "thin",
        "node-2": "skew",
        "node-3": "cloned",
        "node-4": "lost",
        "node-5": "",
        "node-6": "gaps absent",
    }
    row = found["node-6"]
    assert (row["intervals"], row["missing"], row["absent"], row["gaps"], row["longest_gap_s"]) == (7, 4, 1, 1, 1200)
    assert found["node-5"]["boots"] == 2


def test_a_host_that_was_started_twice_in_ten_minutes_is_no_clone(maker: Callable[..., Maker]) -> None:
    small = maker()
    for sequence, (boot, times) in enumerate((("one", (0, 1)), ("two", (1, 2)), ("three", (2, 3)))):
        rows = [host_row(0, START + dt.timedelta(minutes=5 * n), random.Random(1)) | {"boot_id": boot} for n in times]
        small.write("hosts", rows, host_key(0), START, sequence)
    assert (coverage(small)["node-0"]["flags"], coverage(small)["node-0"]["boots"]) == ("", 3)


def test_a_cloned_host_with_the_same_name_is_found_by_its_boot(maker: Callable[..., Maker]) -> None:
    small = maker()
    for sequence, boot in enumerate(("one", "two")):
        rows = [
            host_row(0, START + dt.timedelta(minutes=5 * n), random.Random(1)) | {"boot_id": boot} for n in range(3)
        ]
        small.write("hosts", rows, host_key(0), START, sequence)
    assert coverage(small)["node-0"]["flags"] == "cloned"


def test_trend_has_a_row_for_each_day(made: Maker) -> None:
    rows = isotherm_fleet.open(str(made.root)).query("trend", service="web").rows()
    assert [row["intervals"] for row in rows] == [6 * 288, 6 * 24]
    assert [row["times"] for row in rows] == [288, 24]
    for row in rows:
        mine = [
            r
            for r in made.rows["wss"]
            if r["service"] == "web" and r["time"].timestamp() // 86400 * 86400 == row["day_time_s"]
        ]
        assert row["p95_bytes"] == percentile([step_up(r["wss_10m_bytes"]) for r in mine], 95)


def test_services_and_windows_select_rows(made: Maker) -> None:
    fleet = isotherm_fleet.open(str(made.root))
    assert [row["service"] for row in fleet.query("wss", service="re*").rows()] == ["redis-cache"]
    assert [row["service"] for row in fleet.query("wss", service="w?b").rows()] == ["web"]
    assert fleet.query("wss", service="redis").rows() == []
    assert {row["hours"] for row in fleet.query("wss", since="1h").rows()} == {6}
    hour = fleet.query("wss", since="2026-11-10T05:00Z", until="2026-11-10T06:00Z")
    assert {row["hours"] for row in hour.rows()} == {6}
    assert hour.objects == 12, "objects of other hours are not opened: six of `wss`, six of `hosts`"
    quote = fleet.query("wss", service="o'brien' or true --")
    assert quote.rows() == []


def test_frames_of_notebooks(made: Maker) -> None:
    answer = isotherm_fleet.open(str(made.root)).query("wss", service="redis*", since="7d")
    assert isinstance(answer.arrow(), pa.Table)
    assert list(answer.df()["service"]) == ["redis-cache"]


def test_wrong_usage(made: Maker) -> None:
    fleet = isotherm_fleet.open(str(made.root))
    with pytest.raises(UsageError, match="no query nope; there are: change, cold"):
        fleet.query("nope")
    with pytest.raises(UsageError, match="has no parameter nope; it has: age"):
        fleet.query("wss", nope=1)
    with pytest.raises(UsageError, match=r"3 is none of 10s\|1m"):
        fleet.query("wss", age=3)
    with pytest.raises(UsageError, match="is empty"):
        fleet.query("wss", since="2026-11-11", until="2026-11-10")
    with pytest.raises(UsageError, match="write a duration"):
        fleet.query("wss", since="yesterday")
    with pytest.raises(FleetError, match="no such folder"):
        isotherm_fleet.open(str(made.root / "nope"))


def test_a_store_without_rollups_says_so(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="no rollups of any host"):
        isotherm_fleet.open(str(tmp_path)).query("wss")


def test_a_host_with_a_clock_years_ahead_does_not_move_the_window(copied: Path) -> None:
    future = START.replace(year=2038)
    Maker(copied).write("hosts", [host_row(9, future, random.Random(1))], host_key(9), future)
    now = START.timestamp() + 86400
    answer = Fleet(open_store(str(copied)), Settings(now=lambda: now)).query("coverage")
    assert len(answer.rows()) == 6


def some_object(root: Path, table: str) -> Path:
    return sorted(root.glob(f"v1/{table}/date=*/hour=*/*.parquet"))[0]


def rewritten(path: Path, table: str, version: str) -> None:
    rows = pq.read_table(path)
    pq.write_table(rows.replace_schema_metadata(schema(table, version).metadata), path)


@pytest.mark.parametrize("cut", ["footer", "middle", "empty"])
def test_a_damaged_object_is_named_and_can_be_skipped(copied: Path, cut: str) -> None:
    path = some_object(copied, "wss")
    data = bytearray(path.read_bytes())
    if cut == "middle":
        data[4:400] = bytes(396)
    path.write_bytes({"footer": data[:-9], "middle": data, "empty": b""}[cut])
    with pytest.raises(DamagedObject, match=path.name):
        isotherm_fleet.open(str(copied)).query("wss")
    warnings: list[str] = []
    answer = isotherm_fleet.open(str(copied), skip_damaged=True, warn=warnings.append).query("wss")
    assert path.name in warnings[0] and len(warnings) == 1
    assert {row["hours"] for row in answer.rows()} == {6 * 26 - 1}


def test_a_damaged_object_of_the_newest_hour_of_hosts_can_be_skipped(copied: Path) -> None:
    path = sorted(copied.glob("v1/hosts/date=*/hour=*/*.parquet"))[-1]
    path.write_bytes(path.read_bytes()[:-9])
    warnings: list[str] = []
    answer = isotherm_fleet.open(str(copied), skip_damaged=True, warn=warnings.append).query("coverage")
    assert path.name in warnings[0] and len(warnings) == 1
    assert sorted(row["missing"] + row["absent"] for row in answer.rows()) == [0, 0, 0, 0, 0, 12]


def test_a_newer_version_is_refused_by_name(copied: Path) -> None:
    path = some_object(copied, "wss")
    rewritten(path, "wss", "2")
    with pytest.raises(FleetError, match=f"{path.name}: it has version 2, and this program knows up to 1"):
        isotherm_fleet.open(str(copied), skip_damaged=True).query("wss")


def test_an_object_of_another_kind_is_named(copied: Path) -> None:
    path = some_object(copied, "wss")
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DamagedObject, match=f"{path.name}: by its metadata it has format none"):
        isotherm_fleet.open(str(copied)).query("wss")


def test_further_columns_and_tables_are_no_error(copied: Path) -> None:
    expected = isotherm_fleet.open(str(copied)).query("wss").rows()
    path = some_object(copied, "wss")
    rows = pq.read_table(path)
    pq.write_table(rows.append_column("later", pa.array([1] * rows.num_rows)), path)
    (copied / "v1/later/date=2026-11-10/hour=00").mkdir(parents=True)
    assert isotherm_fleet.open(str(copied)).query("wss").rows() == expected


def test_every_query_has_a_header_and_ends_with_an_order() -> None:
    assert set(sqlfile.queries()) == {"wss", "cold", "tier", "huge", "outliers", "change", "coverage", "trend"}
    for query in sqlfile.queries().values():
        assert query.about and len(query.about) < 110
        assert query.text.rstrip().rsplit("\n", 1)[-1].startswith("order by "), query.name


@given(st.integers(0, 4_000_000_000), st.integers(1, 10**7))
def test_a_window_has_all_hours_with_a_part_of_it(since_s: int, length_s: int) -> None:
    here = window.Window(since_s, since_s + length_s)
    days = here.dates()
    for time_s in (since_s, since_s + length_s // 2, since_s + length_s - 1):
        time = dt.datetime.fromtimestamp(time_s, dt.timezone.utc)
        assert time.date() in days and here.has_hour(time.date(), time.hour)
    before = dt.datetime.fromtimestamp(max(0, since_s - 3600), dt.timezone.utc)
    assert since_s < 3600 or not here.has_hour(before.date(), before.hour)
