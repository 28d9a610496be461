"""Advice: worked examples for each rule, and what is withheld."""

from __future__ import annotations

import dataclasses
from typing import Any

from maker import Maker

import isotherm_fleet
from isotherm_fleet import advise
from isotherm_fleet.advise import Facts

MIB = 1 << 20


def facts(**changed: Any) -> Facts:
    """A service on three hosts for nine days, with nothing to find but a limit that is too large."""
    wss = {
        "hosts": 3,
        "instances": 3,
        "hours": 3 * 9 * 24,
        "p95_bytes": 800 * MIB,
        "p99_bytes": 900 * MIB,
        "max_bytes": 1000 * MIB,
        "resident_max_bytes": 3000 * MIB,
        "anon_max_bytes": 1100 * MIB,
        "swapped_max_bytes": None,
        "cannot_leave_bytes": 1100 * MIB,
        "unlimited": 0,
        "limit_min_bytes": 4096 * MIB,
        "limit_max_bytes": 4096 * MIB,
        "request_min_bytes": 840 * MIB,
        "request_max_bytes": 850 * MIB,
        "unmeasured_permille": 0,
    }
    days = [
        {"day_time_s": n * 86400, "intervals": 864, "thin_intervals": 0, "times": 288, "p95_bytes": 800 * MIB}
        for n in range(9)
    ]
    made = Facts("a", wss, days, None, None)
    return dataclasses.replace(made, **changed)


def kinds(found: list[advise.Advice]) -> list[str]:
    return [advice.kind for advice in found]


def test_a_limit_is_the_greatest_working_set_with_room() -> None:
    (limit,) = advise.advise(facts())
    # 1,000 MiB times 1.2, which is 75 times 16 MiB.
    assert (limit.kind, limit.bytes, limit.confidence) == ("limit", 1200 * MIB, "high")
    assert limit.text == "limit 1.2 GiB (now 4.0 GiB)"


def test_a_limit_that_is_near_is_left() -> None:
    wss = facts().wss | {"limit_min_bytes": 1200 * MIB, "limit_max_bytes": 1300 * MIB}
    assert advise.advise(facts(wss=wss)) == []


def test_without_swap_a_limit_is_not_below_what_cannot_leave() -> None:
    large = facts().wss | {"cannot_leave_bytes": 10000 * MIB}
    (limit,) = advise.advise(facts(wss=large))
    # 10,000 MiB, rounded up to 16 MiB.
    assert limit.bytes == 10000 * MIB and "With swap, the limit by its working set is 1.2 GiB" in limit.evidence[1]
    (some,) = advise.advise(facts(wss=large | {"swapped_max_bytes": 4096}))
    assert some.bytes == 10000 * MIB, "there is swap on one host, and none on others"
    (swapped,) = advise.advise(facts(wss=large | {"swapped_max_bytes": 4096, "cannot_leave_bytes": None}))
    assert swapped.bytes == 1200 * MIB


def test_advice_names_instances_without_a_limit() -> None:
    wss = facts().wss | {"limit_min_bytes": 1200 * MIB, "limit_max_bytes": 1200 * MIB}
    assert advise.advise(facts(wss=wss)) == []
    (limit,) = advise.advise(facts(wss=wss | {"unlimited": 2}))
    assert limit.text == "limit 1.2 GiB (now 1.2 GiB, none on 2 of 3 instances)"


def test_a_limit_takes_more_than_the_hours_of_the_night() -> None:
    night = [day | {"times": 72} for day in facts().days]
    (limit,) = advise.advise(facts(days=night))
    assert (limit.bytes, limit.confidence) == (None, "withheld")
    assert limit.text == "limit withheld: rows of 25% of a day, less than 50%"
    assert advise.confidence(facts(days=night)) == "low"
    half = [day | {"times": 150} for day in facts().days]
    assert advise.confidence(facts(days=half)) == "medium"


def test_growth_is_the_median_slope_and_raises_the_limit() -> None:
    days = [day | {"p95_bytes": (800 + 10 * n) * MIB} for n, day in enumerate(facts().days)]
    days[4]["p95_bytes"] = 5000 * MIB
    found = {advice.kind: advice for advice in advise.advise(facts(days=days))}
    assert found["growth"].bytes == 10 * MIB
    # (4,096 - 900) / 10 days.
    assert "in 320 days" in found["growth"].text
    assert found["limit"].bytes == 1504 * MIB, "1,200 and 300 MiB, rounded up to 16"


def test_small_growth_is_noise() -> None:
    days = [day | {"p95_bytes": (800 + 2 * n) * MIB} for n, day in enumerate(facts().days)]
    assert "growth" not in kinds(advise.advise(facts(days=days)))


def test_huge_pages_and_cold_memory() -> None:
    huge = {
        "hosts": 3,
        "hot_bytes": 900 * MIB,
        "hot_small_bytes": 500 * MIB,
        "hot_small_anon_bytes": 400 * MIB,
        "hot_small_permille": 555,
        "worth_ranges": 100,
    }
    tier = {
        "hosts": 3,
        "age_ms": 131072,
        "fits_bytes": 600 * MIB,
        "fits_permille": 300,
        "resident_mean_bytes": 2000 * MIB,
        "refault_ppm_per_min": 1500,
    }
    found = {advice.kind: advice for advice in advise.advise(facts(huge=huge, tier=tier))}
    assert (found["huge-pages"].bytes, found["cold"].bytes) == (400 * MIB, 600 * MIB)
    assert "after 2.2 min of idle time" in found["cold"].text and "0.150%" in found["cold"].evidence[0]
    little = {"hot_small_anon_bytes": 100 * MIB}, {"fits_bytes": 100 * MIB}
    assert kinds(advise.advise(facts(huge=huge | little[0], tier=tier | little[1]))) == ["limit"]


def test_advice_is_withheld_where_coverage_is_thin() -> None:
    thin = [day | {"thin_intervals": 300} for day in facts().days]
    for changed, reason in (
        ({"days": thin}, "coverage is thin"),
        ({"days": [facts().days[0] | {"times": 287}]}, "rows of 23 hours, fewer than 24"),
        ({"wss": facts().wss | {"unmeasured_permille": 200}}, "20% of its memory is unmeasured"),
    ):
        (advice,) = advise.advise(facts(**changed))
        assert advice.confidence == "withheld" and reason in advice.text and advice.bytes is None
    assert advise.advise(facts(days=facts().days[:2]))[0].text == "limit withheld: 2 days of rows, fewer than 3"
    day = facts().days[0]
    # 23:00 to 01:00 two midnights later.
    ends = [day | {"times": 12}, day, day | {"times": 12}]
    assert advise.advise(facts(days=ends))[0].text == "limit withheld: 1 days of rows, fewer than 3"


def test_confidence_follows_days_and_hosts() -> None:
    assert advise.confidence(facts()) == "high"
    assert advise.confidence(facts(days=facts().days[:4])) == "medium"
    assert advise.confidence(facts(wss=facts().wss | {"hosts": 1})) == "low"


def test_facts_come_from_the_queries(made: Maker) -> None:
    found = advise.gather(isotherm_fleet.open(str(made.root)), service=None, since=None, until=None)
    assert [each.service for each in found] == ["batch", "web", "postgres", "redis-cache"]
    for each in found:
        assert len(each.days) == 2 and each.tier is not None and each.huge is not None
        assert advise.advise(each)[0].text == "limit withheld: 1 days of rows, fewer than 3"
