"""The window of a query: `--since` and `--until` as people write them. Pure; the newest time in the store and the
clock are arguments.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from .errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_END_S = 253_402_300_800
_DURATION = re.compile(r"(\d+)([smhdw])")


@dataclass(frozen=True)
class Window:
    """From `since_s` to before `until_s`, in seconds since 1970."""

    since_s: int
    until_s: int

    def dates(self) -> list[dt.date]:
        """Days in UTC that have a part of the window, in order."""
        first, last = (dt.datetime.fromtimestamp(s, dt.timezone.utc).date() for s in (self.since_s, self.until_s - 1))
        return [first + dt.timedelta(days=n) for n in range((last - first).days + 1)]

    def has_hour(self, date: dt.date, hour: int) -> bool:
        """Whether an hour of a day has a part of the window."""
        start_s = int(dt.datetime(date.year, date.month, date.day, hour, tzinfo=dt.timezone.utc).timestamp())
        return start_s < self.until_s and start_s + 3600 > self.since_s

    def __str__(self) -> str:
        return f"{iso(self.since_s)} to {iso(self.until_s)}"


def iso(time_s: int) -> str:
    """A time as in 2026-11-24 10:05Z."""
    return dt.datetime.fromtimestamp(time_s, dt.timezone.utc).strftime("%Y-%m-%d %H:%MZ")


def duration_s(text: str) -> int:
    """Seconds of a duration such as 90s, 30m, 24h, 7d or 2w."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no duration: write 90s, 30m, 24h, 7d or 2w")
    return int(match[1]) * _UNITS[match[2]]


def _time_s(text: str, option: str) -> int:
    try:
        time = dt.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: write a duration such as 7d, a day such as 2026-11-24, "
            "or a time such as 2026-11-24T10:00Z"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)).timestamp())


def parse_window(since: str | None, until: str | None, newest_s: int, default_since: str) -> Window:
    """The window. A duration counts back from its end; a time without a zone is in UTC. Without `until` it ends at
    `newest_s`.
    """
    if until is None:
        until_s = newest_s
    elif _DURATION.fullmatch(until):
        until_s = newest_s - duration_s(until)
    else:
        until_s = _time_s(until, "--until")
    since = since or default_since
    since_s = until_s - duration_s(since) if _DURATION.fullmatch(since) else _time_s(since, "--since")
    if since_s < 0 or until_s > _END_S:
        raise UsageError("the window is out of range: years from 1970 to 9999 can be asked for")
    if since_s >= until_s:
        raise UsageError(f"the window from {iso(since_s)} to {iso(until_s)} is empty: --since has to be before --until")
    return Window(since_s, until_s)
