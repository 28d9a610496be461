"""Stores of rollups for tests: a few hosts and services, made from a seed, with the sums that queries should find.

It follows `docs/reference/rollups.md` and not the reader: names, types and metadata are written out here once more on
purpose.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = dt.datetime(2026, 11, 10, tzinfo=dt.timezone.utc)
SERVICES = ("redis-cache", "postgres", "web", "batch")
Row = dict[str, Any]

_TEXT = {
    "host",
    "service",
    "cgroup",
    "kind",
    "labels",
    "hostname",
    "machine_id",
    "boot_id",
    "kernel",
    "version",
    "source",
    "cpu",
    "action",
    "result",
}
COLUMNS = {
    "hosts": "time host hostname machine_id boot_id kernel version source cpu cpus memory_bytes covered_ns snapshots "
    "lost_snapshots resident_bytes unmeasured_bytes estimated_bytes monitor_cpu_ns read_errors slowdown_pct "
    "clock_skew_ns",
    "wss": "time host service cgroup labels processes covered_ns resident_bytes resident_max_bytes wss_10s_bytes "
    "wss_1m_bytes wss_10m_bytes wss_1h_bytes wss_10s_max_bytes wss_1m_max_bytes wss_10m_max_bytes wss_1h_max_bytes "
    "unmeasured_bytes swapped_bytes limit_bytes request_bytes cgroup_anon_bytes cgroup_file_bytes cgroup_slab_bytes "
    "left_bytes refaulted_bytes",
    "heat": "time host service cgroup kind code pages huge_pages swapped_pages",
    "idle": "time host service cgroup code pages",
    "refaults": "time host service cgroup code pages",
    "huge_opportunity": "time host service cgroup level ranges huge_ranges",
    "actions": "time host action result huge_ranges bytes refaulted_bytes",
}


def schema(table: str, version: str = "1") -> pa.Schema:
    """The Parquet schema of a table, with the metadata of the format."""
    fields = []
    for name in COLUMNS[table].split():
        kind = pa.string() if name in _TEXT else pa.float64() if name == "slowdown_pct" else pa.int64()
        fields.append(pa.field(name, pa.timestamp("us", "UTC") if name == "time" else kind))
    meta = {"isotherm.format": "isotherm-rollup", "isotherm.version": version, "isotherm.table": table}
    return pa.schema(fields, metadata=meta)


def host_key(number: int) -> str:
    return hashlib.sha256(f"host {number}".encode()).hexdigest()[:16]


@dataclass
class Maker:
    """Writes objects of hosts into a store."""

    root: Path
    seed: int = 1
    hosts: int = 3
    intervals_per_hour: int = 12
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """All rows that were written, by table."""

    def write(self, table: str, rows: list[Row], host: str, time: dt.datetime, sequence: int = 0) -> str:
        """Writes an object of one hour, and returns its path below the store."""
        name = hashlib.sha256(f"{host} boot {table} {time:%Y%m%d%H} {sequence}".encode()).hexdigest()[:32]
        path = f"v1/{table}/date={time:%Y-%m-%d}/hour={time:%H}/{name}.parquet"
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema(table)), target)
        self.rows.setdefault(table, []).extend(rows)
        return path

    def fill(self, hours: int, start: dt.datetime = START) -> None:
        """Writes every table of every host for so many hours."""
        for number in range(self.hosts):
            for hour in range(hours):
                self.hour(number, start + dt.timedelta(hours=hour))

    def hour(self, number: int, start: dt.datetime, sequence: int = 0) -> list[str]:
        """Writes the objects of a host and hour, and returns their paths."""
        random_ = random.Random(f"{self.seed} {number} {start:%Y%m%d%H} {sequence}")
        tables: dict[str, list[Row]] = {table: [] for table in COLUMNS}
        for interval in range(self.intervals_per_hour):
            time = start + dt.timedelta(minutes=5 * interval)
            self._interval(tables, number, time, random_)
        return [self.write(table, rows, host_key(number), start, sequence) for table, rows in tables.items()]

    def _interval(self, tables: dict[str, list[Row]], number: int, time: dt.datetime, random_: random.Random) -> None:
        host = host_key(number)
        tables["hosts"].append(host_row(number, time, random_))
        for index, service in enumerate(SERVICES):
            key = {"time": time, "host": host, "service": service, "cgroup": f"/{service}.service"}
            pages = (index + 1) * 20_000 + random_.randrange(10_000) + number * 100
            tables["wss"].append(key | wss_values(pages, random_))
            for code in (1, 40, 82, 120, 180):
                for kind in ("anon", "file"):
                    count = random_.randrange(5_000)
                    values = {"code": code, "pages": count, "huge_pages": count // 512 * 512 // 2, "swapped_pages": 0}
                    tables["heat"].append(key | {"kind": kind} | values)
            for code in (82, 101, 130, 160, 190):
                tables["idle"].append(key | {"code": code, "pages": random_.randrange(4_000)})
                tables["refaults"].append(key | {"code": code, "pages": random_.randrange(max(1, 300 - code))})
            for level in (4, 16, 20):
                tables["huge_opportunity"].append(
                    key | {"level": level, "ranges": random_.randrange(40), "huge_ranges": 3}
                )
        tables["actions"].append(
            {
                "time": time,
                "host": host,
                "action": "collapse",
                "result": "done",
                "huge_ranges": random_.randrange(9),
                "bytes": 2 << 20,
                "refaulted_bytes": 0,
            }
        )


def host_row(number: int, time: dt.datetime, random_: random.Random) -> Row:
    """A row of `hosts`."""
    return {
        "time": time,
        "host": host_key(number),
        "hostname": f"node-{number}",
        "machine_id": f"machine-{number}",
        "boot_id": f"boot-{number}",
        "kernel": "6.12",
        "version": "0.1.0",
        "source": "page-table",
        "cpu": "modelled",
        "cpus": 8,
        "memory_bytes": 64 << 30,
        "covered_ns": 300_000_000_000,
        "snapshots": 60,
        "lost_snapshots": 0,
        "resident_bytes": 10 << 30,
        "unmeasured_bytes": 0,
        "estimated_bytes": 0,
        "monitor_cpu_ns": random_.randrange(10**9),
        "read_errors": 0,
        "slowdown_pct": 0.5,
        "clock_skew_ns": random_.randrange(-1000, 1000),
    }


def wss_values(pages: int, random_: random.Random) -> Row:
    """Columns of `wss` but for the key, of a working set of ten minutes of so many pages."""
    size = pages * 4096
    ages = {"10s": size // 4, "1m": size // 2, "10m": size, "1h": size + size // 8}
    return {
        "labels": "",
        "processes": 2,
        "covered_ns": 300_000_000_000,
        "resident_bytes": size * 2,
        "resident_max_bytes": size * 2,
        **{f"wss_{age}_bytes": value for age, value in ages.items()},
        **{f"wss_{age}_max_bytes": value + 4096 for age, value in ages.items()},
        "unmeasured_bytes": random_.randrange(3) * 4096,
        "swapped_bytes": 0,
        "limit_bytes": 1 << 30,
        "request_bytes": None,
        "cgroup_anon_bytes": size,
        "cgroup_file_bytes": None,
        "cgroup_slab_bytes": None,
        "left_bytes": 0,
        "refaulted_bytes": 0,
    }
