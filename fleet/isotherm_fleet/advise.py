"""Advice by service: limit and request, huge pages, cold memory, growth; each with its evidence, or the reason why it
is withheld.

Pure but for `gather`, which asks the queries. The rules are constants below, so that an advice can be checked by hand
from the rows that are printed with it. Advice changes nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .fleet import Fleet
from .render import bytes_text, duration_text

Row = dict[str, Any]

MIN_HOURS = 24
"""Hours of rows, over all instances, below which nothing is advised."""
MIN_DAY_SHARE = 0.5
"""Share of the day with rows, in the middle one of the days, below which a limit is withheld: the busy hours may be
missing."""
MIN_DAYS = 3
"""Days with rows below which a limit is withheld: a peak of the week may be missing. Hours at the ends of
the time that was seen are no days."""
MAX_THIN = 0.2
"""Share of thin intervals from which on everything is withheld."""
MAX_UNMEASURED_PERMILLE = 100
"""Memory of which nothing is known from which on everything is withheld."""
LIMIT_HEADROOM = 1.2
"""A limit is the greater of p99 and the maximum over a week, with this much room, which the page cache shares. Without
swap it is never below the anonymous memory that there was."""
REQUEST_HEADROOM = 1.05
GROWTH_DAYS = 30
"""Growth of so many days is added to a limit."""
MIN_GROWTH_PER_DAY = 0.005
"""Growth below this share of the working set a day is taken for noise."""
MIN_CHANGE = 0.1
"""A limit or request that is this close to the present one is not worth a change."""
INTERVALS_A_DAY = 288
MIN_BYTES = 64 << 20
STEP_BYTES = 16 << 20
"""Limits are rounded up to this."""


@dataclass
class Advice:
    """One advice. `bytes` is the proposed size, or what would be gained; `None` if it is withheld."""

    service: str
    kind: str
    """`limit`, `request`, `huge-pages`, `cold` or `growth`."""
    text: str
    bytes: int | None
    confidence: str
    """`high`, `medium`, `low`, or `withheld`."""
    evidence: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """What the queries found about a service."""

    service: str
    wss: Row
    days: list[Row]
    """Rows of `trend`, by day."""
    tier: Row | None
    huge: Row | None


def gather(
    fleet: Fleet, *, service: str | None, since: str | None, until: str | None, max_refault_ppm: int = 2000
) -> list[Facts]:
    """Asks the queries."""
    window = {"service": service, "since": since or "7d", "until": until}
    by_day: dict[str, list[Row]] = {}
    for row in fleet.query("trend", **window).rows():
        by_day.setdefault(row["service"], []).append(row)
    tier = {row["service"]: row for row in fleet.query("tier", max_refault_ppm=max_refault_ppm, **window).rows()}
    huge = {row["service"]: row for row in fleet.query("huge", **window).rows()}
    return [
        Facts(row["service"], row, by_day.get(row["service"], []), tier.get(row["service"]), huge.get(row["service"]))
        for row in fleet.query("wss", **window).rows()
    ]


def advise(facts: Facts) -> list[Advice]:
    """All advice for a service. If too little is known, one entry says so."""
    reason = withheld_because(facts)
    if reason is not None:
        return [Advice(facts.service, "any", f"withheld: {reason}", None, "withheld", [coverage_text(facts)])]
    found = [_limit(facts), _request(facts), _growth(facts), _huge(facts), _cold(facts)]
    return [advice for advice in found if advice is not None]


def thin_share(facts: Facts) -> float:
    """The share of intervals in which there were processes for less than half of the time."""
    intervals = sum(day["intervals"] for day in facts.days)
    return sum(day["thin_intervals"] for day in facts.days) / intervals if intervals else 1.0


def day_share(facts: Facts) -> float:
    """The share of the day with rows, in the middle one of the days. The first and the last are skipped where there are
    more than two: they may be incomplete.
    """
    days = facts.days[1:-1] if len(facts.days) > 2 else facts.days
    shares = sorted(day["times"] / INTERVALS_A_DAY for day in days)
    return shares[len(shares) // 2] if shares else 0.0


def whole_days(facts: Facts) -> int:
    """Days with rows of at least half of the day."""
    return sum(day["times"] >= INTERVALS_A_DAY * MIN_DAY_SHARE for day in facts.days)


def withheld_because(facts: Facts) -> str | None:
    """Why nothing can be advised; `None` if something can."""
    # By the clock: five minutes of 300 instances say nothing about the rest of a day.
    hours = sum(day["times"] for day in facts.days) * 24 // INTERVALS_A_DAY
    if hours < MIN_HOURS:
        return f"rows of {hours} hours, fewer than {MIN_HOURS}"
    if thin_share(facts) > MAX_THIN:
        return f"coverage is thin: in {thin_share(facts):.0%} of the intervals processes ran for less than half of it"
    if facts.wss["unmeasured_permille"] > MAX_UNMEASURED_PERMILLE:
        return f"{facts.wss['unmeasured_permille'] / 10:.0f}% of its memory is unmeasured"
    return None


def confidence(facts: Facts) -> str:
    """High: a week on three hosts or more, all day, with few thin intervals and little unmeasured. Low: less than three
    days, one host, or less than half of the day.
    """
    days, hosts = whole_days(facts), facts.wss["hosts"]
    is_whole = day_share(facts) >= 0.9 and thin_share(facts) <= 0.02 and facts.wss["unmeasured_permille"] <= 20
    if days >= 7 and hosts >= 3 and is_whole:
        return "high"
    return "medium" if days >= MIN_DAYS and hosts >= 2 and day_share(facts) >= MIN_DAY_SHARE else "low"


def coverage_text(facts: Facts) -> str:
    """What the advice rests on."""
    row = facts.wss
    return (
        f"{row['instances']} instances on {row['hosts']} hosts, {row['hours']} hours in {len(facts.days)} days "
        f"({day_share(facts):.0%} of a day), {thin_share(facts):.1%} thin, "
        f"{row['unmeasured_permille'] / 10:.1f}% unmeasured"
    )


def growth_per_day(facts: Facts) -> float:
    """Bytes a day by which the daily p95 grows: the median slope over all pairs of days, which one odd day does not
    move. 0 if there are fewer than four days. The first and the last day are skipped where there are more than five:
    they may be incomplete.
    """
    days = facts.days[1:-1] if len(facts.days) > 5 else facts.days
    if len(days) < 4:
        return 0.0
    slopes = sorted(
        (later["p95_bytes"] - earlier["p95_bytes"]) / ((later["day_time_s"] - earlier["day_time_s"]) / 86400)
        for n, earlier in enumerate(days)
        for later in days[n + 1 :]
    )
    middle = len(slopes) // 2
    slope = slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2
    return slope if abs(slope) >= MIN_GROWTH_PER_DAY * facts.wss["p95_bytes"] else 0.0


def _rounded(size: float) -> int:
    return max(STEP_BYTES, -(-int(size) // STEP_BYTES) * STEP_BYTES)


def _is_near(size: int, present: int | None) -> bool:
    return present is not None and present > 0 and abs(size - present) <= MIN_CHANGE * present


def cannot_leave(row: Row) -> int:
    """Memory of an instance that cannot leave, at its most. Only instances count of which nothing was in swap: one with
    swap says nothing about a host without.
    """
    return int(row["cannot_leave_bytes"] or 0)


def _limit(facts: Facts) -> Advice | None:
    row = facts.wss
    if day_share(facts) < MIN_DAY_SHARE:
        text = f"limit withheld: rows of {day_share(facts):.0%} of a day, less than {MIN_DAY_SHARE:.0%}"
        return Advice(facts.service, "limit", text, None, "withheld", [coverage_text(facts)])
    if whole_days(facts) < MIN_DAYS:
        text = f"limit withheld: {whole_days(facts)} days of rows, fewer than {MIN_DAYS}"
        return Advice(facts.service, "limit", text, None, "withheld", [coverage_text(facts)])
    growth = max(0.0, growth_per_day(facts)) * GROWTH_DAYS
    by_working_set = _rounded(max(row["p99_bytes"], row["max_bytes"]) * LIMIT_HEADROOM + growth)
    size = max(by_working_set, _rounded(cannot_leave(row) + growth))
    is_everywhere = row["unlimited"] == 0
    if is_everywhere and _is_near(size, row["limit_min_bytes"]) and _is_near(size, row["limit_max_bytes"]):
        return None
    present = f"now {bytes_text(row['limit_min_bytes'])}" if row["limit_min_bytes"] is not None else "none now"
    if row["limit_min_bytes"] is not None and not is_everywhere:
        present += f", none on {row['unlimited']} of {row['instances']} instances"
    evidence = [
        f"working set of 10 minutes: p99 {bytes_text(row['p99_bytes'])}, greatest {bytes_text(row['max_bytes'])}, "
        f"times {LIMIT_HEADROOM}, and {bytes_text(growth)} for {GROWTH_DAYS} days of growth",
        coverage_text(facts),
    ]
    if size > by_working_set:
        held = (
            f"{bytes_text(cannot_leave(row))} cannot leave without swap, of an instance with none in swap: a lower "
            f"limit ends it. With swap, the limit by its working set is {bytes_text(by_working_set)}"
        )
        evidence.insert(1, held)
    return Advice(facts.service, "limit", f"limit {bytes_text(size)} ({present})", size, confidence(facts), evidence)


def _request(facts: Facts) -> Advice | None:
    row = facts.wss
    size = _rounded(row["p95_bytes"] * REQUEST_HEADROOM)
    if _is_near(size, row["request_min_bytes"]) and _is_near(size, row["request_max_bytes"]):
        return None
    present = f"now {bytes_text(row['request_min_bytes'])}" if row["request_min_bytes"] is not None else "none known"
    evidence = [
        f"working set of 10 minutes: p95 {bytes_text(row['p95_bytes'])}, times {REQUEST_HEADROOM}",
        coverage_text(facts),
    ]
    return Advice(
        facts.service, "request", f"request {bytes_text(size)} ({present})", size, confidence(facts), evidence
    )


def _growth(facts: Facts) -> Advice | None:
    growth = growth_per_day(facts)
    if growth <= 0:
        return None
    first, last = facts.days[0]["p95_bytes"], facts.days[-1]["p95_bytes"]
    text = f"grows by {bytes_text(growth)} a day"
    limit = facts.wss["limit_min_bytes"]
    if limit:
        days_left = max(0.0, limit - facts.wss["p99_bytes"]) / growth
        text += f": p99 is at the limit of {bytes_text(limit)} in {days_left:.0f} days"
    evidence = [
        f"p95 by day: {bytes_text(first)} on the first, {bytes_text(last)} on the last of {len(facts.days)}",
        coverage_text(facts),
    ]
    return Advice(facts.service, "growth", text, int(growth), confidence(facts), evidence)


def _huge(facts: Facts) -> Advice | None:
    row = facts.huge
    if row is None or row["hot_small_anon_bytes"] < MIN_BYTES * row["hosts"] or row["hot_small_permille"] < 100:
        return None
    size = row["hot_small_anon_bytes"]
    evidence = [
        f"hot {bytes_text(row['hot_bytes'])}, of which {bytes_text(row['hot_small_bytes'])} on small pages and "
        f"{bytes_text(size)} of that private; {row['worth_ranges']} huge ranges are worth a huge page",
        coverage_text(facts),
    ]
    text = f"huge pages: {bytes_text(size)} of hot memory is on small pages; `isotherm run` collapses the hottest first"
    return Advice(facts.service, "huge-pages", text, size, confidence(facts), evidence)


def _cold(facts: Facts) -> Advice | None:
    row = facts.tier
    if (
        row is None
        or row["age_ms"] is None
        or row["fits_bytes"] < MIN_BYTES * row["hosts"]
        or row["fits_permille"] < 50
    ):
        return None
    age = duration_text(row["age_ms"] / 1000)
    evidence = [
        f"idle for {age} or longer: {bytes_text(row['fits_bytes'])} of {bytes_text(row['resident_mean_bytes'])}; "
        f"refaults {row['refault_ppm_per_min'] / 1e4:.3f}% of the working set a minute",
        coverage_text(facts),
    ]
    text = f"cold: {bytes_text(row['fits_bytes'])} can leave after {age} of idle time (page-out, or a slower tier)"
    return Advice(facts.service, "cold", text, row["fits_bytes"], confidence(facts), evidence)
