"""What a store of rollups looks like: tables, columns, sort keys, and names of objects.

`docs/reference/rollups.md` is the specification; this module is its form in Python, without I/O. `manifest` decides
by these names which objects count, `store` finds them, and the engines read them. Only what a program needs is here:
meanings of columns are in the specification.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from .errors import FleetError

VERSION = 1
FORMAT = "isotherm-rollup"
ROOT = "v1"
INTERVAL_S = 300
PAGE_BYTES = 4096

META_FORMAT, META_VERSION, META_TABLE = "isotherm.format", "isotherm.version", "isotherm.table"


@dataclass(frozen=True)
class Table:
    """A table: its columns by type (as in SQL), and the order of rows in compacted objects."""

    name: str
    columns: dict[str, str]
    sort: tuple[str, ...]

    @property
    def bucket_column(self) -> str:
        """The column whose hash selects the bucket of a row."""
        return "service" if "service" in self.columns else "host"


def _columns(text: str, kind: str = "bigint") -> dict[str, str]:
    return {name: kind for name in text.split()}


_HOST = {"time": "timestamp", "host": "varchar"}
_SERVICE = {**_HOST, "service": "varchar", "cgroup": "varchar"}
_SERVICE_SORT = ("service", "cgroup", "host", "time")

_TABLES = (
    Table(
        "hosts",
        {
            **_HOST,
            **_columns("hostname machine_id boot_id kernel version source cpu", "varchar"),
            **_columns("cpus memory_bytes covered_ns snapshots lost_snapshots resident_bytes unmeasured_bytes"),
            **_columns("estimated_bytes monitor_cpu_ns read_errors"),
            **_columns("slowdown_pct", "double"),
            **_columns("clock_skew_ns"),
        },
        ("host", "time", "boot_id"),
    ),
    Table(
        "wss",
        {
            **_SERVICE,
            **_columns("labels", "varchar"),
            **_columns("processes covered_ns resident_bytes resident_max_bytes"),
            **_columns("wss_10s_bytes wss_1m_bytes wss_10m_bytes wss_1h_bytes"),
            **_columns("wss_10s_max_bytes wss_1m_max_bytes wss_10m_max_bytes wss_1h_max_bytes"),
            **_columns("unmeasured_bytes swapped_bytes limit_bytes request_bytes"),
            **_columns("cgroup_anon_bytes cgroup_file_bytes cgroup_slab_bytes left_bytes refaulted_bytes"),
        },
        _SERVICE_SORT,
    ),
    Table(
        "heat",
        {**_SERVICE, "kind": "varchar", **_columns("code pages huge_pages swapped_pages")},
        (*_SERVICE_SORT, "kind", "code"),
    ),
    Table("idle", {**_SERVICE, **_columns("code pages")}, (*_SERVICE_SORT, "code")),
    Table("refaults", {**_SERVICE, **_columns("code pages")}, (*_SERVICE_SORT, "code")),
    Table(
        "huge_opportunity",
        {**_SERVICE, **_columns("level ranges huge_ranges")},
        (*_SERVICE_SORT, "level"),
    ),
    Table(
        "actions",
        {**_HOST, **_columns("action result", "varchar"), **_columns("huge_ranges bytes refaulted_bytes")},
        ("host", "time", "action", "result"),
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in _TABLES}


@dataclass(frozen=True)
class ObjectName:
    """The name of an object, taken apart. `hour` is set for objects of hosts, `bucket` for compacted ones."""

    path: str
    table: str
    date: dt.date
    hour: int | None
    bucket: int | None
    number: int
    """Of a compacted object, the number of the manifest that it was made for; 0 for objects of hosts."""


_OBJECT = re.compile(
    r"v1/(?P<table>[a-z0-9_]+)/date=(?P<date>\d{4}-\d\d-\d\d)/"
    r"(?:hour=(?P<hour>[01]\d|2[0-3])|bucket=(?P<bucket>[0-9a-f]{2}))/(?P<name>[0-9a-f]{32})\.parquet"
)
_MANIFEST = re.compile(r"v1/_manifests/(?P<table>[a-z_]+)/date=(?P<date>\d{4}-\d\d-\d\d)/(?P<number>\d{8})\.json")


def parse_object(path: str) -> ObjectName | None:
    """The parts of an object's path below the store; `None` for anything else, such as a file that is still being
    written.
    """
    match = _OBJECT.fullmatch(path)
    date = _date(match["date"]) if match else None
    if match is None or date is None:
        return None
    hour = int(match["hour"]) if match["hour"] else None
    bucket = int(match["bucket"], 16) if match["bucket"] else None
    number = int(match["name"][:8], 16) if bucket is not None else 0
    return ObjectName(path, match["table"], date, hour, bucket, number)


def parse_manifest(path: str) -> int | None:
    """The number in the path of a manifest; `None` for anything else."""
    match = _MANIFEST.fullmatch(path)
    return int(match["number"]) if match else None


def _date(text: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def table_dir(table: str) -> str:
    """The folder of a table."""
    return f"{ROOT}/{table}"


def day_dir(table: str, date: dt.date) -> str:
    """The folder of a table and day."""
    return f"{ROOT}/{table}/date={date.isoformat()}"


def day_dirs(table: str, date: dt.date) -> list[str]:
    """All folders in which a compaction of a table and day writes: of objects, of their siblings, and of manifests."""
    day = day_dir(table, date)
    siblings = [hourly_path(day)] if table in HOURLY else []
    return [day, *siblings, manifest_dir(table, date)]


def manifest_dir(table: str, date: dt.date) -> str:
    """The folder of the manifests of a table and day."""
    return f"{ROOT}/_manifests/{table}/date={date.isoformat()}"


def manifest_path(table: str, date: dt.date, number: int) -> str:
    """The path of a manifest. Eight digits, so that names sort as numbers do."""
    return f"{manifest_dir(table, date)}/{number:08}.json"


def date_of_dir(name: str) -> dt.date | None:
    """The date in the last part of a folder's path, `date=YYYY-MM-DD`."""
    last = name.rstrip("/").rsplit("/", 1)[-1]
    return _date(last[5:]) if last.startswith("date=") else None


def metadata(table: str) -> dict[str, str]:
    """The keys in the Parquet metadata of an object."""
    return {META_FORMAT: FORMAT, META_VERSION: str(VERSION), META_TABLE: table}


HOURLY = {
    "heat": ("pages", "huge_pages", "swapped_pages"),
    "idle": ("pages",),
    "refaults": ("pages",),
    "huge_opportunity": ("ranges", "huge_ranges"),
}
"""Tables whose compacted objects have a sibling with a row for each hour, and the columns that are summed in it."""
_HOURLY_END = "_1h"


def hourly_path(path: str) -> str:
    """The sibling of a compacted object that has a row for each hour: the same name in the folder `<table>_1h`."""
    root, table, rest = path.split("/", 2)
    return f"{root}/{table}{_HOURLY_END}/{rest}"


def of_hourly_path(path: str) -> str:
    """The compacted object whose sibling this is."""
    root, table, rest = path.split("/", 2)
    return f"{root}/{table.removesuffix(_HOURLY_END)}/{rest}"


def is_hourly(table: str) -> bool:
    """Whether the name of a folder is that of siblings."""
    return table.removesuffix(_HOURLY_END) in HOURLY and table.endswith(_HOURLY_END)


def check_version(version: object, what: str) -> None:
    """Refuses what a newer version has written, by name."""
    try:
        number = int(str(version))
    except ValueError:
        raise FleetError(f"read {what}: the version {version!r} is no number; the object is not a rollup") from None
    if number > VERSION:
        raise FleetError(
            f"read {what}: it has version {number}, and this program knows up to {VERSION}; update isotherm-fleet"
        )
