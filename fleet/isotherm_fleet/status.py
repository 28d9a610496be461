"""What a store holds: for each table its days, objects and bytes, what compaction has still to do, and how complete
hosts are.

Objects and manifests are listed, not read; hosts come from the query `coverage`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from . import contract, render
from .errors import FleetError
from .fleet import Fleet


@dataclass
class TableStatus:
    """A table. `fresh` are objects of hosts that count, `compacted` those of compactions; `replaced` wait for their
    removal.
    """

    table: str
    days: int = 0
    first: str = ""
    last: str = ""
    fresh: int = 0
    compacted: int = 0
    replaced: int = 0
    missing: int = 0
    """Objects that count and are not there."""
    total_bytes: int = 0
    is_known: bool = True


@dataclass
class Status:
    """The store."""

    url: str
    tables: list[TableStatus] = field(default_factory=list)
    hosts: int = 0
    flags: dict[str, int] = field(default_factory=dict)
    """Hosts by what `coverage` flags."""
    coverage_error: str | None = None
    """Why that is not known, if it is not."""

    def to_dict(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


def status(fleet: Fleet) -> Status:
    """Lists the store."""
    found = Status(fleet.store.url)
    for name in fleet.store.tables():
        found.tables.append(_table(fleet, name))
    if any(table.table == "hosts" and table.days for table in found.tables):
        try:
            rows = fleet.query("coverage").rows()
        except FleetError as error:
            found.coverage_error = str(error)
            return found
        found.hosts = len(rows)
        found.flags = dict(sorted(Counter(flag for row in rows for flag in row["flags"].split()).items()))
    return found


def _table(fleet: Fleet, name: str) -> TableStatus:
    dates = fleet.store.dates(name)
    table = TableStatus(name, is_known=name in contract.TABLES)
    for date in dates:
        valid = fleet.store.manifest(name, date)
        names = set()
        for entry in fleet.store.entries(contract.day_dir(name, date)):
            parsed = contract.parse_object(entry.path)
            if parsed is None:
                continue
            names.add(entry.path)
            if not valid.counts(parsed):
                table.replaced += 1
                continue
            table.total_bytes += entry.size_bytes
            if parsed.hour is None:
                table.compacted += 1
            else:
                table.fresh += 1
        table.missing += len(valid.live - names)
        if names or valid.live:
            # Folders of days that have expired may be left, without anything in them.
            table.days += 1
            table.first, table.last = table.first or date.isoformat(), date.isoformat()
    return table


def text(found: Status) -> str:
    """For the terminal."""
    columns = ["table", "days", "first", "last", "fresh", "compacted", "replaced", "missing", "total_bytes"]
    out = f"{found.url}\n\n" + render.table_text(columns, [asdict(table) for table in found.tables])
    unknown = [table.table for table in found.tables if not table.is_known]
    if unknown:
        out += f"\ntables that this version does not know: {', '.join(unknown)}\n"
    if found.coverage_error:
        out += f"\nwhich hosts there are is not known: {found.coverage_error}\n"
    if found.hosts:
        flags = ", ".join(f"{count} {flag}" for flag, count in found.flags.items()) or "none flagged"
        out += f"\n{found.hosts} hosts in the last 7 days: {flags} (isotherm-fleet query coverage)\n"
    return out
