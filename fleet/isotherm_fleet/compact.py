"""Compaction: many small objects of hosts become few sorted ones, and what was replaced goes after a grace period.

`plan` is pure: a manifest and a listing in, what to merge into which names out. `Compactor` carries plans out with
DuckDB; on Spark `spark/compact.py` carries out the same plans. The order of steps makes an end at any moment
harmless:

1. Compacted objects are written, under names that depend on nothing but the plan. Nothing counts them yet.
2. The manifest is put if absent. From here on they count, and what they replace does not.
3. What has not counted for the grace period is removed, by the rules in `manifest`.

A run that was killed in 1 is repeated with the same names; before 3, by the next run. Of two at once, one loses at 2
and says so.

Most runs append: new objects of hosts become one more object in each bucket. Only when a bucket would have more than
`MAX_PER_BUCKET`, all of the day is merged into one. So a day that is compacted each hour is written a few times, and
not 24 times.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from . import contract, manifest
from .contract import TABLES, Table
from .duck import Duck
from .errors import DamagedObject, FleetError
from .manifest import Manifest
from .store import Entry, Store, part_name

BUCKET_BYTES = 128 << 20
"""Compressed bytes that a bucket should have at most."""
MAX_BUCKETS = 64
MAX_PER_BUCKET = 4
GRACE_S = 3600
CLEAN_DAYS = 7
"""Days that have left `days` are cleaned for this many more: what their last compaction replaced waits for the grace
period."""
KEEP_PARTS_S = 86_400
"""How long a file that is not finished is left alone: longer than any compaction takes."""


@dataclass(frozen=True)
class Plan:
    """A compaction of a table and day."""

    before: Manifest
    inputs: tuple[str, ...]
    """All objects that are merged: of hosts, and compacted ones."""
    bytes: int
    kept: tuple[str, ...]
    """Compacted objects that go on counting as they are."""
    buckets: int

    @property
    def number(self) -> int:
        """The number of the manifest to come."""
        return self.before.number + 1

    @property
    def merged(self) -> list[str]:
        """The objects of hosts among the inputs."""
        return [path for path in self.inputs if "/hour=" in path]

    def output(self, bucket: int) -> str:
        """The path of the compacted object of a bucket."""
        label = f"{bucket:02x}"
        name = manifest.object_name(self.number, f"{label} of {self.buckets}", self.inputs)
        return f"{contract.day_dir(self.before.table, self.before.date)}/bucket={label}/{name}.parquet"

    def after(self, written: Iterable[str]) -> Manifest:
        """The manifest that makes the objects count that were written."""
        return manifest.next_manifest(self.before, [*self.kept, *written], self.merged)


def plan(
    valid: Manifest,
    entries: list[Entry],
    *,
    without: frozenset[str] = frozenset(),
    max_per_bucket: int = MAX_PER_BUCKET,
    bucket_bytes: int = BUCKET_BYTES,
) -> Plan | None:
    """What to merge; `None` if there is nothing new. `without` are objects that cannot be read: they stay as they
    are.
    """
    sizes = {entry.path: entry.size_bytes for entry in entries}
    counted = [path for path in manifest.counting(valid, sizes) if path not in without]
    fresh = [path for path in counted if "/hour=" in path]
    if not fresh:
        return None
    live = [path for path in counted if "/hour=" not in path]
    # What no manifest lists is removed in the end, whether it can be read at the moment or not.
    unread = sorted(valid.live & without)
    per_bucket = Counter(path.rsplit("/", 2)[1] for path in live)
    is_whole = max(per_bucket.values(), default=0) >= max_per_bucket
    inputs, kept = (sorted(fresh + live), unread) if is_whole else (fresh, sorted(live + unread))
    size = sum(sizes.get(path, 0) for path in inputs)
    buckets = 1
    while buckets < MAX_BUCKETS and size > buckets * bucket_bytes:
        buckets *= 2
    return Plan(valid, tuple(inputs), size, tuple(kept), buckets)


def expiry(valid: Manifest, entries: list[Entry]) -> Manifest | None:
    """The manifest by which nothing of a day counts any more; `None` if nothing counts now."""
    counted = manifest.counting(valid, (entry.path for entry in entries))
    if not counted:
        return None
    return manifest.next_manifest(valid, [], [path for path in counted if "/hour=" in path])


@dataclass
class Report:
    """What was done to a table and day."""

    table: str
    date: str
    inputs: int = 0
    outputs: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


@dataclass
class Options:
    """What a run does. `now` is the clock; `warn` gets a line for each object that is left as it is."""

    grace_s: float = GRACE_S
    keep_days: int | None = None
    max_per_bucket: int = MAX_PER_BUCKET
    bucket_bytes: int = BUCKET_BYTES
    memory: str = "1GiB"
    threads: int = 2
    dry_run: bool = False
    now: Callable[[], float] = time.time
    warn: Callable[[str], None] = field(default=lambda line: None)


class Compactor:
    """Carries out compactions of one store with DuckDB."""

    def __init__(self, store: Store, options: Options | None = None) -> None:
        self.store = store
        self.options = options or Options()
        self.damaged: list[str] = []
        """Objects that were left as they are because they cannot be read."""
        self.failed: list[str] = []
        """Tables and days that could not be compacted, with the reason. The others are not held up by them."""

    def run(self, tables: list[str], days: int | None = None) -> Iterator[Report]:
        """Compacts, expires and cleans, a table and day after the other. `days` bounds how far back days are
        compacted. Days that have left these bounds in the last week are only cleaned.
        """
        today = dt.datetime.fromtimestamp(self.options.now(), dt.timezone.utc).date()
        for name in tables:
            for date in self._dates(name):
                age_days = (today - date).days
                is_expired = self.options.keep_days is not None and age_days > self.options.keep_days
                if is_expired or days is None or age_days < days:
                    yield self._tried(name, date, partial(self.day, TABLES[name], date, is_expired))
                elif age_days < days + CLEAN_DAYS and not self.options.dry_run:
                    report = self._tried(name, date, partial(self._cleaned, name, date))
                    if report.removed or report.note:
                        yield report

    def _tried(self, table: str, date: dt.date, work: Callable[[], Report]) -> Report:
        """Does it, or reports why it could not be done."""
        try:
            return work()
        except (FleetError, FileNotFoundError) as error:
            self.failed.append(f"{table} of {date.isoformat()}: {error}")
            self.options.warn(f"warning: {table} of {date.isoformat()} is left as it is: {error}")
            return Report(table, date.isoformat(), note="failed")

    def _cleaned(self, table: str, date: dt.date) -> Report:
        return Report(table, date.isoformat(), removed=self.clean(table, date))

    def _dates(self, table: str) -> list[dt.date]:
        """Days with objects or with manifests."""
        with_manifests = map(contract.date_of_dir, self.store.folders(f"{contract.ROOT}/_manifests/{table}"))
        return sorted({*self.store.dates(table), *(date for date in with_manifests if date is not None)})

    def day(self, table: Table, date: dt.date, is_expired: bool = False) -> Report:
        """Compacts a table and day, or lets it expire, and removes what has not counted for the grace period."""
        report = Report(table.name, date.isoformat())
        valid = self.store.manifest(table.name, date)
        entries = list(self.store.entries(contract.day_dir(table.name, date)))
        if is_expired:
            self._expire(report, expiry(valid, entries))
        else:
            self._compact(report, table, valid, entries)
        if not self.options.dry_run:
            report.removed = self.clean(table.name, date, is_expired)
        return report

    def _expire(self, report: Report, after: Manifest | None) -> None:
        if after is None:
            return
        report.note = "would expire" if self.options.dry_run else "expired"
        if not self.options.dry_run and not self.store.put_if_absent(after.path, after.to_json()):
            report.note = "another compaction was faster: its manifest counts"

    def _compact(self, report: Report, table: Table, valid: Manifest, entries: list[Entry]) -> None:
        without: frozenset[str] = frozenset()
        while True:
            planned = plan(
                valid,
                entries,
                without=without,
                max_per_bucket=self.options.max_per_bucket,
                bucket_bytes=self.options.bucket_bytes,
            )
            if planned is None:
                report.inputs = report.bytes_before = 0
                return
            try:
                self._carry_out(report, table, planned)
                return
            except DamagedObject as error:
                # The others are not held up by it. It goes on counting, so that a query names it, too.
                new = frozenset(error.paths) - without
                if not new:
                    raise
                without |= new
                self.damaged += sorted(new)
                self.options.warn(f"warning: {error}: left as it is")

    def _carry_out(self, report: Report, table: Table, planned: Plan) -> None:
        report.inputs, report.bytes_before = len(planned.inputs), planned.bytes
        if self.options.dry_run:
            report.note = f"would become {planned.buckets} or fewer"
            return
        written, report.rows, report.bytes_after = self.merge(table, planned)
        report.outputs = len(written)
        after = planned.after(written)
        if not self.store.put_if_absent(after.path, after.to_json()):
            report.outputs, report.note = 0, "another compaction was faster: its manifest counts"

    def merge(self, table: Table, planned: Plan) -> tuple[list[str], int, int]:
        """Writes the compacted objects. Returns their paths, rows and bytes. Spark has its own."""
        paths = list(planned.inputs)
        written, rows, size = [], 0, 0
        with Duck(self.store, self.options.memory, self.options.threads) as duck:
            duck.check(table.name, paths)
            expected = duck.merge_view(table, paths)
            for bucket in range(planned.buckets):
                with Part(self.store, contract.day_dir(table.name, planned.before.date)) as part:
                    count = duck.write_bucket(table, paths, (bucket, planned.buckets), part)
                    if count:
                        self._put_hourly(duck, table, part, planned.output(bucket))
                        size += part.stat().st_size
                        self.store.put_file(planned.output(bucket), part)
                        written.append(planned.output(bucket))
                    rows += count
        check_rows(planned, expected, rows)
        return written, rows, size

    def _put_hourly(self, duck: Duck, table: Table, source: Path, path: str) -> None:
        """Stores the sibling of an object, before the object: what counts has one from its first moment."""
        if table.name not in contract.HOURLY:
            return
        sibling = contract.hourly_path(path)
        with Part(self.store, sibling.rsplit("/", 2)[0]) as part:
            duck.write_hourly(table, source, part)
            self.store.put_file(sibling, part)

    def clean(self, table: str, date: dt.date, is_expired: bool = False) -> int:
        """Removes what has not counted for the grace period, manifests before, and unfinished files. Returns the
        number of objects.
        """
        now_s = self.options.now()
        numbered = self.store.manifests(table, date)
        old = [entry for _, entry in numbered if entry.written_s + self.options.grace_s <= now_s]
        day = contract.day_dir(table, date)
        for folder in contract.day_dirs(table, date):
            self.store.remove(self.store.leftovers(folder, now_s - KEEP_PARTS_S))
        if not old:
            return 0
        settled = manifest.parse(self.store.read(old[-1].path), old[-1].path)
        there = [entry.path for entry in self.store.entries(day)]
        # Siblings first: a query takes one only beside an object that counts.
        siblings = {contract.of_hourly_path(path): path for path in self.store.hourly(table, date)}
        self.store.remove(siblings[path] for path in manifest.dead(settled, siblings))
        removed = self.store.remove(manifest.dead(settled, there))
        # Manifests go after the objects: a run that ends in between finds them again.
        self.store.remove(entry.path for entry in old[:-1])
        is_last = len(old) == len(numbered) and not settled.live
        if is_expired and is_last and len(there) == removed:
            self.store.remove([settled.path])
        return removed


def check_rows(planned: Plan, expected: int, written: int) -> None:
    """Stops a compaction that has lost or doubled rows, before its manifest makes it count."""
    if expected != written:
        raise FleetError(
            f"compact {planned.before.table} of {planned.before.date}: {expected} rows in, {written} out; what counts "
            "was not changed. This is a bug: please report it"
        )


class Part:
    """A name for a file to be written, which is removed at the end if it is still there."""

    def __init__(self, store: Store, directory: str) -> None:
        self._temporary = None
        folder = store.part_dir(directory)
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="isotherm-fleet-")
            folder = Path(self._temporary.name)
        self.path = folder / part_name()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)
        if self._temporary is not None:
            self._temporary.cleanup()
