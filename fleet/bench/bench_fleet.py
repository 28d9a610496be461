"""`make bench-fleet`: queries over a modelled fleet, its compaction, DuckDB beside Spark, and the plain way in the
same run.

Prints what it measures, and one line RESULT at the end. A whole run is stored under bench/results, by the day; one
with `--hosts`, `--days` or `--skip` is not. The modelled fleet is written by `isotherm-fleet-model`, whose truth the
working sets are compared with.

The figures of uploads are those of the program that ships rollups: give its measuring program by `--upload-bench`.
Without it they are left out, and the run is not stored.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from model import REPORTS, ROOT, fleet_command, model_store, objects, p95_errors, run_timed, say
from raw import ask, recording

PARTS = ("queries", "spark", "growth", "plain", "upload")
RUNS = 3


class Bench:
    """The lines and figures of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.figures: dict[str, float] = {}

    def line(self, text: str) -> None:
        """Prints and keeps a line."""
        say(text)
        self.lines.append(text)

    def result(self, key: str, value: float) -> None:
        """Keeps a figure."""
        self.figures[key] = value


def seconds_of(bench: Bench, store: Path, title: str) -> dict[str, float]:
    """The six reports, each the median of some runs, in turn: seconds by name."""
    bench.line(f"\n{title}: {RUNS} runs of each report, in turn")
    bench.line(f"{'report':<10} {'wall s':>8} {'least':>8} {'most':>8} {'CPU s':>8} {'RSS MiB':>8}")
    runs: dict[str, list[Any]] = {report[0]: [] for report in REPORTS}
    for _ in range(RUNS):
        for report in REPORTS:
            runs[report[0]].append(fleet_command("query", *report, "--json", store=store))
    for name, timed in runs.items():
        walls = [run.wall_s for run in timed]
        cpu, rss = median(run.cpu_s for run in timed), max(run.rss_mib for run in timed)
        bench.line(f"{name:<10} {median(walls):8.2f} {min(walls):8.2f} {max(walls):8.2f} {cpu:8.2f} {rss:8.0f}")
    bench.result(f"query_rss_mib_{title.split()[0]}", max(run.rss_mib for timed in runs.values() for run in timed))
    return {name: median(run.wall_s for run in timed) for name, timed in runs.items()}


def compacted(bench: Bench, store: Path, memory: str = "1GiB") -> tuple[int, int]:
    """Compacts a store. Returns how many objects there were before and after."""
    before, bytes_before = objects(store)
    timed = fleet_command("compact", "--days", "1000000", "--grace", "0s", "--json", "--memory", memory, store=store)
    after, bytes_after = objects(store)
    bench.line(
        f"compaction: {before} objects of {bytes_before / 1e6:.0f} MB become {after} of {bytes_after / 1e6:.0f} MB in "
        f"{timed.wall_s:.0f} s ({timed.cpu_s:.0f} s of CPU, {timed.rss_mib:.0f} MiB)"
    )
    return before, after


def queries(bench: Bench, hosts: int, days: int) -> None:
    """The reports over the whole fleet, before and after its compaction, and the truth."""
    store = bench.folder / "fleet"
    truth = model_store(store, hosts, days)
    written, host_days = truth["written"], hosts * days
    bench.line(
        f"{hosts} hosts, {days} days: {written['objects']} objects, {written['rows']} rows, {written['bytes']} bytes"
    )
    bench.result("bytes_per_host_day", written["bytes"] / host_days)
    bench.result("puts_per_host_day", written["objects"] / host_days)
    fresh = fleet_command("query", "wss", "--json", store=store)
    bench.line(f"wss before compaction: {fresh.wall_s:.2f} s, {fresh.rss_mib:.0f} MiB")
    bench.result("query_s_before_compaction", fresh.wall_s)
    before, after = compacted(bench, store)
    bench.result("compaction_ratio", before / after)
    again = fleet_command("query", "wss", "--json", store=store)
    if json.loads(again.output) != json.loads(fresh.output):
        sys.exit("bench-fleet: the answer changed by compaction")
    seconds = seconds_of(bench, store, f"{hosts}x{days} compacted")
    bench.result("query_s_200x7", max(seconds.values()))
    bench.result("query_rss_mib", bench.figures.pop(f"query_rss_mib_{hosts}x{days}"))
    errors = p95_errors(truth, json.loads(again.output)["rows"])
    worst = max(errors, key=lambda service: errors[service])
    bench.line(
        f"p95 of the working set against the truth: at most {errors[worst]:.2%} off ({worst}), {len(errors)} services"
    )
    bench.result("wss_p95_max_error_pct", errors[worst] * 100)


def spark(bench: Bench, _hosts: int, _days: int) -> None:
    """Every query on both engines, over the last day of the compacted fleet."""
    if shutil.which("java") is None:
        bench.line("\nSpark was not run: needs java (scripts/setup.sh fleet)")
        return
    timed = run_timed(["bench/spark_equal.py", str(bench.folder / "fleet"), "2d"])
    found = json.loads(timed.output.splitlines()[-1])
    share, seconds = found["equal"], found["seconds"]
    bench.line(f"\nSpark, local[2], the last two days: {share:.0%} of the queries equal row by row; s: {seconds}")
    bench.result("equal_duckdb_spark", found["equal"])


def growth(bench: Bench, hosts: int, _days: int) -> None:
    """The reports of one day over ten times as many hosts."""
    sums = []
    for count in (hosts, 10 * hosts):
        store = bench.folder / f"day-{count}"
        model_store(store, count, 1)
        compacted(bench, store)
        sums.append(sum(seconds_of(bench, store, f"{count}x1 compacted").values()))
        shutil.rmtree(store)
    bench.line(f"six reports over one day: {sums[0]:.2f} s over {hosts} hosts, {sums[1]:.2f} s over {10 * hosts}")
    bench.result("growth_2000_over_200", sums[1] / sums[0])


def plain(bench: Bench, hosts: int, days: int) -> None:
    """The question of `wss` over recordings of four hosts and one hour, and what that makes of the whole fleet."""
    folder = bench.folder / "recordings"
    count = 4
    size = sum(recording(folder / str(host), host, 1) for host in range(count))
    seconds = median(ask(folder) for _ in range(RUNS))
    shutil.rmtree(folder)
    per_host_day = size / count * 24
    whole_s = seconds / count * hosts * days * 24
    measured = f"{count} hosts and 1 hour are {size / 1e6:.1f} MB and take {seconds:.2f} s"
    bench.line(f"\nplain way, recordings in DuckDB: {measured}")
    scaled = f"{per_host_day / 1e6:.0f} MB a host and day, {whole_s:.0f} s for {hosts} hosts and {days} days"
    bench.line(f"extrapolated: {scaled}")
    bench.result("plain_bytes_per_host_day", per_host_day)
    bench.result("plain_query_s_200x7_extrapolated", whole_s)


def upload(bench: Bench, program: Path) -> None:
    """CPU time of uploads, from the RESULT line of the shipper's own program."""
    if not program.exists():
        bench.line(f"\nuploads were not measured: {program} is not there")
        return
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    result = next(line for line in reversed(lines) if line.startswith("RESULT "))
    for pair in result.split()[1:]:
        key, _, value = pair.partition("=")
        if key == "upload_cpu_s_per_host_day":
            bench.result(key, float(value))
    bench.line(f"\nuploads, by {program.name}: {result}")


def machine() -> str:
    """As the other benches describe it."""
    info = Path("/proc/cpuinfo").read_text()
    names = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return f"{os.cpu_count()} x {names[0] if names else '?'}, {memory_kib / 2**20:.1f} GiB, Linux {platform.release()}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures queries and compaction over a modelled fleet.")
    parser.add_argument("--hosts", type=int, default=200, help="hosts (%(default)s)")
    parser.add_argument("--days", type=int, default=7, help="days (%(default)s)")
    parser.add_argument("--skip", action="append", choices=PARTS, default=[], help="leave a part out; may be repeated")
    parser.add_argument("--folder", type=Path, help="where the stores go (a temporary folder under target/)")
    parser.add_argument(
        "--upload-bench", type=Path, default=ROOT / "target/release/examples/day", help="measures uploads (%(default)s)"
    )
    return parser.parse_args()


def main() -> None:
    """Runs the parts."""
    args = _arguments()
    (ROOT / "target").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-fleet-", dir=args.folder or ROOT / "target") as folder:
        bench = Bench(Path(folder))
        for name, part in (("queries", queries), ("spark", spark), ("growth", growth), ("plain", plain)):
            if name not in args.skip:
                part(bench, args.hosts, args.days)
        if "upload" not in args.skip:
            upload(bench, args.upload_bench)
    result = "RESULT " + " ".join(f"{key}={value:.4f}" for key, value in bench.figures.items())
    say(result)
    is_whole = not args.skip and (args.hosts, args.days) == (200, 7) and "upload_cpu_s_per_host_day" in bench.figures
    if is_whole:
        today = dt.datetime.now(dt.timezone.utc).date().isoformat()
        target = ROOT / f"bench/results/{today}/bench-fleet.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        head = ["command: make bench-fleet", f"machine: {machine()}", ""]
        target.write_text("\n".join([*head, *bench.lines, result]) + "\n")
    else:
        say("not stored: a part was left out, or the fleet has another size")


if __name__ == "__main__":
    main()
