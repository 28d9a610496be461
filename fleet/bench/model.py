"""Modelled stores for the bench and the demo, and timed runs of the command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "target/release/isotherm-fleet-model"
REPORTS: tuple[tuple[str, ...], ...] = (
    ("wss",),
    ("cold",),
    ("tier",),
    ("huge",),
    ("change", "--set", "days=3", "--since", "6d"),
    ("coverage",),
)
"""The six reports that the bench times and the demo prints."""


def say(line: str) -> None:
    """Prints a line at once: a run takes minutes."""
    print(line, flush=True)


def model_store(folder: Path, hosts: int, days: int) -> dict[str, Any]:
    """Writes a modelled fleet, and returns its `truth.json`."""
    if not MODEL.exists():
        sys.exit(f"{MODEL} is not there: run `make fleet-model`")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [MODEL, "--hosts", str(hosts), "--days", str(days), "--to", folder]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    return dict(json.loads((folder / "truth.json").read_text()))


@dataclass(frozen=True)
class Timed:
    """A run of the command: wall time, CPU time, greatest resident memory, and what it printed."""

    wall_s: float
    cpu_s: float
    rss_mib: float
    output: bytes


def run_timed(arguments: list[str]) -> Timed:
    """Runs `python ARGUMENTS` as a process of its own, and fails if that fails."""
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, cwd=ROOT / "fleet")
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall_s = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(arguments)} ended with {child.returncode}")
    return Timed(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


def fleet_command(*arguments: str, store: Path) -> Timed:
    """Runs `isotherm-fleet` on a store."""
    return run_timed(["-m", "isotherm_fleet", *arguments, "--store", str(store)])


def objects(store: Path) -> tuple[int, int]:
    """How many objects a store has, and their bytes."""
    sizes = [path.stat().st_size for path in store.glob("v1/*/date=*/*/*.parquet")]
    return len(sizes), sum(sizes)


def p95_errors(truth: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    """By service, by how much the p95 of a report is off from the truth, as a share of the truth."""
    found = {row["service"]: row["p95_bytes"] for row in rows}
    return {
        service["service"]: abs(found.get(service["service"], 0) / service["wss_10m_p95_bytes"] - 1)
        for service in truth["services"]
    }
