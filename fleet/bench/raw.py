"""Recordings for the plain way: the tables of a recording that the question takes, of modelled hosts, and the
question in SQL.

A row for each process and step of heat, every ten seconds, as `docs/reference/recording.md` has it. Numbers are drawn
from a seed: their amount is what matters here, not their meaning.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

SNAPSHOT_S = 10
PROCESSES = 12
CODES = range(2, 202, 5)

QUESTION = """
    with used as (
        select filename as host, snapshot, comm, sum(pages) * 4096 as bytes
        from read_parquet($heat, filename = true) join (
            select filename as host_of, snapshot, pid, start_ticks, comm from read_parquet($targets, filename = true)
        ) using (snapshot, pid, start_ticks)
        where kind = 'temperature' and interval_ns <= 600000000000
            and parse_dirpath(filename) = parse_dirpath(host_of)
        group by all
    )
    select comm, quantile_disc(bytes, [0.5, 0.95, 0.99]) from used group by comm order by comm
"""


def recording(folder: Path, host: int, hours: int) -> int:
    """Writes a recording of a host, and returns its bytes."""
    random_ = random.Random(f"recording {host}")
    folder.mkdir(parents=True, exist_ok=True)
    targets: dict[str, list[object]] = {name: [] for name in ("snapshot", "pid", "start_ticks", "comm")}
    heat: dict[str, list[object]] = {
        name: [] for name in ("snapshot", "pid", "start_ticks", "kind", "code", "interval_ns", "pages")
    }
    for snapshot in range(hours * 3600 // SNAPSHOT_S):
        for process in range(PROCESSES):
            row = (snapshot, 1000 + process, process, f"service-{process}")
            for name, value in zip(targets, row, strict=True):
                targets[name].append(value)
            for kind in ("temperature", "idle"):
                for code in CODES:
                    interval_ns = round(2 ** ((code - 2) / 8) * 1e6)
                    values = (*row[:3], kind, code, interval_ns, random_.randrange(1, 5000))
                    for name, value in zip(heat, values, strict=True):
                        heat[name].append(value)
    for name, columns in (("targets", targets), ("heat", heat)):
        pq.write_table(pa.table(columns), folder / f"{name}-000001.parquet", compression="zstd")
    return sum(path.stat().st_size for path in folder.iterdir())


def ask(folder: Path) -> float:
    """Seconds of the question over all recordings in a folder."""
    began = time.monotonic()
    with duckdb.connect() as con:
        con.execute("set threads = 2")
        files = {
            name: [str(path) for path in sorted(folder.glob(f"*/{name}-*.parquet"))] for name in ("heat", "targets")
        }
        con.execute(QUESTION, files).fetchall()
    return time.monotonic() - began
