"""Compaction with DuckDB: answers stay the same, repeats change nothing, late objects join, days expire, and damage
holds up nothing.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import seed
from maker import START, Maker, host_key, host_row

import isotherm_fleet
from isotherm_fleet import contract, duck, sqlfile
from isotherm_fleet.compact import Compactor, Options, Report
from isotherm_fleet.store import open_store

TABLES = list(contract.TABLES)
NOW_S = START.timestamp() + 2 * 86400


def compacted(root: Path, **options: Any) -> list[Report]:
    """Compacts a store and returns what was changed."""
    chosen = Options(**({"grace_s": 0.0, "bucket_bytes": 60_000} | options))
    reports = list(Compactor(open_store(str(root)), chosen).run(TABLES))
    return [report for report in reports if report.inputs or report.removed or report.note]


def answers(root: Path) -> dict[str, list[dict[str, Any]]]:
    """All queries, with parameters by which each has rows."""
    fleet = isotherm_fleet.open(str(root))
    params: dict[str, dict[str, object]] = {"change": {"days": 1}, "outliers": {"min_score": 5}}
    found = {name: fleet.query(name, **params.get(name, {})).rows() for name in sqlfile.queries()}
    assert all(found.values())
    return found


def objects(root: Path) -> list[Path]:
    return sorted(root.glob("v1/*/date=*/*/*.parquet"))


def test_answers_stay_the_same_and_a_repeat_changes_nothing(copied: Path) -> None:
    before, count = answers(copied), len(objects(copied))
    reports = compacted(copied)
    assert {report.table for report in reports} == set(TABLES)
    assert sum(report.removed for report in reports) == count
    assert len(objects(copied)) * 10 < count
    assert answers(copied) == before
    there = {path: path.stat().st_mtime_ns for path in copied.rglob("*") if path.is_file()}
    assert compacted(copied) == []
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*") if path.is_file()} == there


def test_rows_are_sorted_by_service_and_keep_their_metadata(copied: Path) -> None:
    compacted(copied, bucket_bytes=10**9)
    for name, table in contract.TABLES.items():
        for path in copied.glob(f"v1/{name}/date=*/bucket=*/*.parquet"):
            rows = pq.read_table(path, partitioning=None)
            keys = list(zip(*(rows[column].to_pylist() for column in table.sort), strict=True))
            assert keys == sorted(keys)
            found = {key.decode(): value.decode() for key, value in pq.read_schema(path).metadata.items()}
            assert found.items() >= contract.metadata(name).items()
            assert str(rows.schema.field("time").type) == "timestamp[us, tz=UTC]"


def test_rows_are_the_same_with_more_texts_than_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {}
    for most in (100_000, 2, 0):
        made = Maker(tmp_path / str(most), seed())
        made.fill(3)
        odd = [row | {"service": service} for row in made.rows["wss"][:9] for service in ("o'brien", "ß", "", "Z", "z")]
        made.write("wss", odd, host_key(9), START)
        monkeypatch.setattr(duck, "MAX_KEY_VALUES", most)
        compacted(made.root, bucket_bytes=20_000)
        rows[most] = {
            str(path.relative_to(made.root)).rsplit("/", 1)[0]: pq.read_table(path, partitioning=None).to_pylist()
            for path in sorted(made.root.glob("v1/*/date=*/bucket=*/*.parquet"))
        }
    assert len(rows[0]) > len(TABLES) and rows[2] == rows[0]
    assert rows[100_000] == rows[0]


def test_a_service_is_in_one_bucket(copied: Path) -> None:
    compacted(copied, bucket_bytes=20_000)
    buckets: dict[str, set[str]] = {}
    for path in copied.glob("v1/wss/date=2026-11-10/bucket=*/*.parquet"):
        for service in set(pq.read_table(path, partitioning=None)["service"].to_pylist()):
            buckets.setdefault(service, set()).add(path.parent.name)
    assert len({next(iter(names)) for names in buckets.values()}) > 1
    assert all(len(names) == 1 for names in buckets.values())


def test_late_objects_join_and_are_merged_once_a_bucket_is_full(copied: Path) -> None:
    maker, live = Maker(copied, seed=5, hosts=1), []
    compacted(copied, bucket_bytes=10**9)
    for sequence in range(1, 6):
        maker.hour(0, START, sequence)
        before = answers(copied)
        compacted(copied, bucket_bytes=10**9)
        assert answers(copied) == before
        live.append(len(list(copied.glob("v1/heat/date=2026-11-10/bucket=00/*.parquet"))))
    assert live == [2, 3, 4, 1, 2]


def opened(root: Path, query: str, **window: str) -> set[str]:
    """Folders of tables whose objects a query reads."""
    fleet = isotherm_fleet.open(str(root))
    chosen = fleet.window(window.get("since"), window.get("until"), "7d")
    tables = sqlfile.query(query).tables
    return {path.split("/")[1] for table in tables for path in fleet.resolve_sums(table, chosen)}


def test_windows_of_whole_hours_take_sums_by_hour_and_others_rows(copied: Path) -> None:
    windows = [{"since": "2026-11-10T05:00", "until": "2026-11-10T07:00"}, {"since": "2026-11-10T05:05"}]
    before = [isotherm_fleet.open(str(copied)).query("tier", **window).rows() for window in windows]
    compacted(copied)
    assert opened(copied, "tier", **windows[0]) == {"hosts", "wss", "idle_1h", "refaults_1h"}
    assert opened(copied, "tier", **windows[1]) == {"hosts", "wss", "idle", "refaults"}
    assert [isotherm_fleet.open(str(copied)).query("tier", **window).rows() for window in windows] == before
    assert before[0] != before[1]


def test_without_a_sibling_rows_are_read(copied: Path) -> None:
    before = answers(copied)
    compacted(copied)
    for path in copied.glob("v1/idle_1h/date=*/bucket=*/*.parquet"):
        path.unlink()
    assert opened(copied, "cold") == {"hosts", "wss", "idle", "refaults_1h"}
    assert answers(copied) == before


def siblings(root: Path) -> tuple[set[str], set[str]]:
    """Siblings that are there, and those of the compacted objects that are there."""
    paths = {str(path.relative_to(root)) for path in root.glob("v1/*/date=*/bucket=*/*.parquet")}
    found = {path for path in paths if "_1h/" in path}
    return found, {contract.hourly_path(path) for path in paths - found if path.split("/")[1] in contract.HOURLY}


def test_siblings_go_with_their_objects(copied: Path) -> None:
    compacted(copied)
    Maker(copied, hosts=1, seed=8).hour(0, START, 1)
    compacted(copied, max_per_bucket=1)
    found, expected = siblings(copied)
    assert found == expected and found


def test_an_object_that_a_host_sends_again_counts_once(copied: Path) -> None:
    again = Path(objects(copied)[0])
    data, before = again.read_bytes(), answers(copied)
    compacted(copied)
    assert not again.exists()
    again.parent.mkdir(parents=True, exist_ok=True)
    again.write_bytes(data)
    assert answers(copied) == before
    compacted(copied)
    assert not again.exists() and answers(copied) == before


def test_replaced_objects_stay_for_the_grace_period(copied: Path) -> None:
    count = len(objects(copied))
    assert sum(report.removed for report in compacted(copied, grace_s=3600.0)) == 0
    assert len(objects(copied)) > count
    later = objects(copied)[0].stat().st_mtime + 7200
    assert sum(report.removed for report in compacted(copied, grace_s=3600.0, now=lambda: later)) == count


def test_days_expire(copied: Path) -> None:
    compacted(copied, keep_days=1, now=lambda: NOW_S + 1, grace_s=-1e12)
    dates = {path.parent.parent.name for path in objects(copied)}
    assert dates == {"date=2026-11-11"}
    # Late rows of an expired day do not come back for good.
    Maker(copied, hosts=1).hour(0, START, 1)
    compacted(copied, keep_days=1, now=lambda: NOW_S + 1, grace_s=-1e12)
    assert {path.parent.parent.name for path in objects(copied)} == {"date=2026-11-11"}
    assert list(copied.glob("v1/_manifests/*/date=2026-11-10/*.json")) == []


def test_a_damaged_object_is_left_and_named_and_the_rest_is_compacted(copied: Path) -> None:
    bad = sorted(copied.glob("v1/heat/date=2026-11-10/hour=03/*.parquet"))[0]
    bad.write_bytes(bad.read_bytes()[:-7])
    warnings: list[str] = []
    compactor = Compactor(open_store(str(copied)), Options(grace_s=0, warn=warnings.append))
    list(compactor.run(TABLES))
    assert compactor.damaged == [str(bad.relative_to(copied))]
    assert bad.name in warnings[0]
    assert [path for path in objects(copied) if "hour=" in str(path)] == [bad]


def test_a_compacted_object_that_cannot_be_read_goes_on_counting(copied: Path) -> None:
    """It may be there again at the next run: a store that answers with an error for a minute."""
    compacted(copied, bucket_bytes=10**9)
    (live,) = copied.glob("v1/wss/date=2026-11-10/bucket=00/*.parquet")
    whole = live.read_bytes()
    before = answers(copied)
    Maker(copied, seed=2).hour(0, START, 9)
    live.write_bytes(whole[:-7])
    compactor = Compactor(open_store(str(copied)), Options(grace_s=0, max_per_bucket=1, bucket_bytes=10**9))
    list(compactor.run(["wss"]))
    list(compactor.run(["wss"]))
    assert live.exists() and compactor.damaged, "named, and not removed"
    live.write_bytes(whole)
    after = answers(copied)
    assert after["wss"] != before["wss"], "the late rows count, too"
    rows = sum(pq.read_metadata(path).num_rows for path in copied.glob("v1/wss/date=2026-11-10/bucket=*/*.parquet"))
    assert rows == pq.read_metadata(live).num_rows + 12 * 4


def test_columns_that_this_version_does_not_know_are_kept(copied: Path) -> None:
    path = sorted(copied.glob("v1/idle/date=2026-11-10/hour=00/*.parquet"))[0]
    rows = pq.read_table(path, partitioning=None)
    later = rows.append_column("later", [[7] * rows.num_rows])
    pq.write_table(later, path)
    compacted(copied, bucket_bytes=10**9)
    (merged,) = copied.glob("v1/idle/date=2026-11-10/bucket=00/*.parquet")
    values = pq.read_table(merged, partitioning=None)["later"].to_pylist()
    assert (values.count(7), values.count(None)) == (rows.num_rows, len(values) - rows.num_rows)


def test_of_two_compactions_at_once_one_counts(copied: Path) -> None:
    before = answers(copied)
    slow = Compactor(open_store(str(copied)), Options(grace_s=0))
    merge = slow.merge

    def overtaken(table: Any, planned: Any) -> Any:
        result = merge(table, planned)
        compacted(copied, grace_s=3600.0)
        return result

    slow.merge = overtaken  # type: ignore[method-assign]
    report = slow.day(contract.TABLES["wss"], START.date())
    assert report.note == "another compaction was faster: its manifest counts"
    assert answers(copied) == before


def test_a_damaged_sibling_costs_time_and_no_answer(copied: Path) -> None:
    before = answers(copied)
    compacted(copied)
    siblings = sorted(copied.glob("v1/idle_1h/date=*/bucket=*/*.parquet"))
    siblings[0].write_bytes(siblings[0].read_bytes()[:-9])
    warnings: list[str] = []
    cold = isotherm_fleet.open(str(copied), warn=warnings.append).query("cold").rows()
    assert cold == before["cold"]
    assert len(warnings) == 1 and warnings[0].endswith("its object is read instead")


def test_a_store_below_a_folder_that_looks_like_a_partition(copied: Path, tmp_path: Path) -> None:
    root = tmp_path / "host=x"
    copied.rename(root)
    before = answers(root)
    compacted(root)
    assert answers(root) == before


def test_one_table_and_day_holds_up_no_other(copied: Path) -> None:
    bad = copied / "v1/_manifests/wss" / f"date={START.date().isoformat()}" / "00000001.json"
    bad.parent.mkdir(parents=True)
    bad.write_text("no manifest")
    warnings: list[str] = []
    compactor = Compactor(open_store(str(copied)), Options(grace_s=0.0, warn=warnings.append))
    reports = list(compactor.run(TABLES))
    assert len(compactor.failed) == len(warnings) == 1 and bad.name in compactor.failed[0]
    assert {(report.table, report.date) for report in reports if not report.outputs} == {
        ("wss", START.date().isoformat())
    }


def test_a_dry_run_changes_nothing(copied: Path) -> None:
    there = sorted(copied.rglob("*"))
    reports = compacted(copied, dry_run=True)
    assert reports
    assert all(report.inputs and report.note.startswith("would become") for report in reports)
    assert sorted(copied.rglob("*")) == there


CHILD = """
import os, signal, sys, pathlib
sys.path.insert(0, {package!r})
import isotherm_fleet
from isotherm_fleet import compact, contract
from isotherm_fleet.store import open_store

left = {step}
def stepped(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call

store = open_store({root!r})
# Every call that changes the store: names come and go by these alone.
for name in ("link", "replace", "rename", "unlink", "remove", "mkdir", "fsync"):
    setattr(os, name, stepped(getattr(os, name)))
list(compact.Compactor(store, compact.Options(grace_s=-60, max_per_bucket=1)).run(["refaults"]))
print(1_000_000 - left)
"""


def run_until(root: Path, step: int) -> subprocess.CompletedProcess[str]:
    """Compacts in a process that kills itself right before its step-th change of the store."""
    package = str(Path(isotherm_fleet.__file__).parent.parent)
    text = textwrap.dedent(CHILD).format(package=package, step=step, root=str(root))
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def answers_of_two(root: Path) -> list[Any]:
    fleet = isotherm_fleet.open(str(root))
    return [fleet.query(name).rows() for name in ("cold", "tier")]


def test_a_compaction_that_is_killed_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        root = tmp_path / name
        shutil.copytree(tmp_path / "first", root)
        return root

    small = Maker(tmp_path / "first", seed=3, hosts=2, intervals_per_hour=2)
    small.fill(1)
    # So that the compaction that is killed finds a manifest, and live objects to merge.
    run_until(small.root, 1_000_000)
    small.hour(0, START, 1)
    whole = fresh("whole")
    expected, steps = answers_of_two(whole), run_until(whole, 1_000_000)
    count = int(steps.stdout)
    assert count > 10, steps.stderr
    final = sorted(str(path.relative_to(whole)) for path in whole.rglob("*.*"))
    for step in range(1, count + 1):
        root = fresh(f"step{step}")
        assert run_until(root, step).returncode == -signal.SIGKILL
        assert answers_of_two(root) == expected, f"after a kill at step {step}"
        assert run_until(root, 1_000_000).returncode == 0
        assert answers_of_two(root) == expected, f"after a repeat of step {step}"
        left = sorted(str(path.relative_to(root)) for path in root.rglob("*.*") if ".part-" not in path.name)
        assert left == final, f"step {step}"


def test_unfinished_files_are_removed_after_a_day(copied: Path) -> None:
    compacted(copied)
    day = "date=2026-11-10"
    folders = [f"v1/wss/{day}", f"v1/heat/{day}", f"v1/heat_1h/{day}", f"v1/_manifests/heat/{day}"]
    parts = [copied / folder / ".part-abc" for folder in folders]
    for part in parts:
        assert part.parent.is_dir()
        part.write_bytes(b"x")
    compacted(copied)
    assert all(part.exists() for part in parts)
    later = parts[-1].stat().st_mtime + 2 * 86400
    compacted(copied, now=lambda: later)
    assert not any(part.exists() for part in parts)


def test_days_that_are_far_back_are_not_listed(copied: Path) -> None:
    compactor = Compactor(open_store(str(copied)), Options(now=lambda: NOW_S))
    assert {report.date for report in compactor.run(["hosts"], days=2)} == {"2026-11-11"}
    late = START - dt.timedelta(days=40)
    Maker(copied).write("hosts", [host_row(1, late, random.Random(1))], host_key(1), late)
    assert {report.date for report in compactor.run(["hosts"], days=5)} == {"2026-11-10", "2026-11-11"}


def test_what_the_last_run_of_a_day_replaced_is_removed_when_the_day_is_not_compacted_any_more(copied: Path) -> None:
    first = Compactor(open_store(str(copied)), Options(now=lambda: NOW_S, grace_s=1e12))
    assert {report.date for report in first.run(["hosts"], days=3)} == {"2026-11-10", "2026-11-11"}
    later = Compactor(open_store(str(copied)), Options(now=lambda: NOW_S + 86_400, grace_s=-1e12))
    removed = {report.date: report.removed for report in later.run(["hosts"], days=2)}
    assert removed["2026-11-10"] > 0, removed
    assert list(later.run(["hosts"], days=2)) == []
