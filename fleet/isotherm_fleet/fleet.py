"""A store as programs and notebooks use it: `open(url).query("wss", service="redis*", since="7d").df()`.

Between `store` (which objects count), `sqlfile` (what is asked) and `duck` (who answers). The command line and
`advise` use nothing else.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from . import contract, sqlfile
from .duck import DEFAULT_MEMORY, DEFAULT_THREADS, Duck, MissingObject
from .errors import DamagedObject, FleetError
from .store import Store, open_store
from .window import Window, parse_window


@dataclass(frozen=True)
class Answer:
    """The rows of a query, and what it read."""

    query: str
    window: Window
    objects: int
    table: Any = field(repr=False)

    def arrow(self) -> Any:
        """A `pyarrow.Table`."""
        return self.table

    def df(self) -> Any:
        """A pandas data frame; takes pandas."""
        return self.table.to_pandas()

    def polars(self) -> Any:
        """A Polars data frame; takes polars."""
        import polars  # type: ignore[import-not-found,unused-ignore]

        return polars.from_arrow(self.table)

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each row."""
        return list(self.table.to_pylist())


@dataclass
class Settings:
    """Limits of DuckDB, and what to do about damaged objects. `warn` gets a line for each that is skipped."""

    memory: str = DEFAULT_MEMORY
    threads: int = DEFAULT_THREADS
    skip_damaged: bool = False
    now: Callable[[], float] = time.time
    warn: Callable[[str], None] = lambda line: print(line, file=sys.stderr)


class Fleet:
    """A store that is open for queries."""

    def __init__(self, store: Store, settings: Settings | None = None) -> None:
        self.store = store
        self.settings = settings or Settings()

    def query(
        self,
        name: str,
        *,
        service: str | None = None,
        since: str | None = None,
        until: str | None = None,
        **params: object,
    ) -> Answer:
        """Answers a query of the package. `service` is a glob; `since` and `until` are as on the command line;
        `params` are the query's.
        """
        return self.ask(sqlfile.query(name), service=service, since=since, until=until, params=params)

    def ask(
        self,
        query: sqlfile.Query,
        *,
        service: str | None = None,
        since: str | None = None,
        until: str | None = None,
        params: dict[str, object] | None = None,
    ) -> Answer:
        """Answers any query that has a header as in `queries/`."""
        skipped: set[str] = set()
        retried = False
        while True:
            try:
                with Duck(self.store, self.settings.memory, self.settings.threads) as duck:
                    newest_s = self._newest_s(duck, skipped) if until is None or until[-1:] in "smhdw" else 0
                    window = parse_window(since, until, newest_s, query.default_window(params or {}))
                    paths = self._views(duck, query, window, service, skipped)
                    values = query.values(params or {}, window.since_s, window.until_s)
                    return Answer(query.name, window, len(paths), duck.fetch(query.duckdb_text, values, paths))
            except MissingObject:
                # A compaction whose grace period has run out removed it. What counts now is found by resolving once
                # more.
                if retried:
                    raise
                retried = True
            except DamagedObject as error:
                new = set(error.paths) - skipped
                # Sums by hour can be done without: the object beside them has the rows.
                are_sums = all(contract.is_hourly(path.split("/")[1]) for path in new)
                if not new or not (self.settings.skip_damaged or are_sums):
                    raise
                skipped |= new
                self.settings.warn(f"warning: {error}: {'its object is read instead' if are_sums else 'skipped'}")

    def newest_s(self) -> int:
        """The end of the hour of the newest interval in the store, in seconds since 1970."""
        with Duck(self.store, self.settings.memory, self.settings.threads) as duck:
            return self._newest_s(duck, set())

    def window(self, since: str | None, until: str | None, default_since: str) -> Window:
        """The window that `since` and `until` mean for this store now."""
        newest_s = self.newest_s() if until is None or until[-1:] in "smhdw" else 0
        return parse_window(since, until, newest_s, default_since)

    def resolve(self, table: str, window: Window) -> list[str]:
        """The objects of a table that count and may have rows of a window, sorted."""
        there = set(self.store.dates(table))
        paths = []
        for date in window.dates():
            if date not in there:
                continue
            for path in self.store.counting(table, date):
                name = contract.parse_object(path)
                if name is None or name.hour is None or window.has_hour(date, name.hour):
                    paths.append(path)
        return paths

    def resolve_sums(self, table: str, window: Window, skipped: Collection[str] = ()) -> list[str]:
        """As `resolve`, with siblings in place of compacted objects where the window is of whole hours: they have sums
        by hour. Those that are `skipped` take no object's place.
        """
        paths = self.resolve(table, window)
        if table not in contract.HOURLY or window.since_s % 3600 or window.until_s % 3600:
            return paths
        there = set().union(*(self.store.hourly(table, date) for date in window.dates())).difference(skipped)
        return [contract.hourly_path(path) if contract.hourly_path(path) in there else path for path in paths]

    def _views(
        self, duck: Duck, query: sqlfile.Query, window: Window, service: str | None, skipped: set[str]
    ) -> list[str]:
        every: list[str] = []
        for table in query.tables:
            found = self.resolve_sums(table, window, skipped) if query.is_sums else self.resolve(table, window)
            paths = [path for path in found if path not in skipped]
            duck.view(contract.TABLES[table], paths, window, service)
            every += paths
        return every

    def _newest_s(self, duck: Duck, skipped: set[str]) -> int:
        """No later than the end of this hour, and days after tomorrow are left out: one host whose clock is ahead must
        not move the default window of all.
        """
        this_hour_s = -(-int(self.settings.now()) // 3600) * 3600
        tomorrow = dt.datetime.fromtimestamp(self.settings.now(), dt.timezone.utc).date() + dt.timedelta(days=1)
        dates = [date for date in self.store.dates("hosts") if date <= tomorrow]
        for date in reversed(dates):
            paths = [path for path in self.store.counting("hosts", date) if path not in skipped]
            hours = [
                name.hour for name in map(contract.parse_object, paths) if name is not None and name.hour is not None
            ]
            # Of hosts' objects, those of the last hour have the newest rows.
            last = max(hours, default=-1)
            chosen = [path for path in paths if f"/hour={last:02}/" in path or "/bucket=" in path]
            newest = duck.newest_s(chosen) if chosen else None
            if newest is not None:
                # Whole hours, as objects of hosts have them: sums by hour do for such windows.
                return min(-(-newest // 3600) * 3600, this_hour_s)
        raise FleetError(
            f"{self.store.url}: no rollups of any host; check the address of the store, or wait for the first "
            "objects, which hosts send at the end of an hour"
        )


def open(url: str, *, options: dict[str, Any] | None = None, **settings: Any) -> Fleet:
    """Opens a store: a folder, or a URL such as `s3://bucket/prefix`. `options` go to fsspec, `settings` are those of
    `Settings`.
    """
    return Fleet(open_store(url, options), Settings(**settings))
