"""The command: exit codes, outputs, a pipe that closes early, and a help that fits a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from maker import Maker

import isotherm_fleet
from isotherm_fleet import cli, render

PACKAGE = Path(isotherm_fleet.__file__).parent.parent


def output(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    """Runs the command, checks its exit code, and returns what it printed: stdout if it succeeds, else stderr."""
    assert cli.run(list(args)) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_a_query_as_table_json_and_parquet(made: Maker, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = ["--store", str(made.root)]
    table = output(capsys, "query", "wss", *store, "-n", "2").splitlines()
    assert table[0].startswith("working set by service") and table[-1] == "2 more rows: -n 0 prints all"
    assert table[2].split()[:2] == ["SERVICE", "HOSTS"] and "MiB" in table[3]
    found = json.loads(output(capsys, "query", "wss", *store, "--json"))
    assert [row["service"] for row in found["rows"]] == ["batch", "web", "postgres", "redis-cache"]
    target = tmp_path / "wss.parquet"
    assert output(capsys, "query", "wss", *store, "--parquet", str(target)) == ""
    assert pq.read_table(target).to_pylist() == found["rows"]


def test_parameters_and_services(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["query", "wss", "--store", str(made.root), "--json", "--service", "web", "--since", "24h", "--set"]
    small, large = (json.loads(output(capsys, *args, f"age={age}"))["rows"][0]["p50_bytes"] for age in ("10s", "1h"))
    assert 4 < large / small < 5


def test_charts(made: Maker, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = ["--store", str(made.root)]
    for name in render.CHARTS:
        args = ["--set", "days=1"] if name == "change" else ["--set", "min_score=5"] if name == "outliers" else []
        assert "█" in output(capsys, "chart", name, *store, *args)
        for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
            target = tmp_path / f"{name}.{kind}"
            output(capsys, "query", name, *store, *args, "--chart", str(target))
            assert target.read_bytes().startswith(start)
    assert "ends in .png or .svg" in output(capsys, "query", "wss", *store, "--chart", "x.gif", code=2)


def test_exit_codes(made: Maker, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = ["--store", str(made.root)]
    assert "no query nope" in output(capsys, "query", "nope", *store, code=2)
    assert "write NAME=VALUE" in output(capsys, "query", "wss", *store, "--set", "age", code=2)
    for name, wrong in (
        ("wss", ["--since", "1000000d"]),
        ("change", ["--set", "days=-3"]),
        ("wss", ["--threads", "0"]),
    ):
        output(capsys, "query", name, *store, *wrong, code=2)
    there = sorted(made.root.rglob("*"))
    for wrong in (["--keep-days", "-1"], ["--days", "-1"], ["--bucket-mib", "0"]):
        assert "or more" in output(capsys, "compact", *store, *wrong, code=2)
    assert sorted(made.root.rglob("*")) == there
    assert "no store" in output(capsys, "query", "wss", "--store", "", code=2)
    assert "no such folder" in output(capsys, "query", "wss", "--store", str(tmp_path / "nope"), code=1)
    assert "no rollups" in output(capsys, "query", "wss", "--store", str(tmp_path), code=1)
    with pytest.raises(SystemExit) as ended:
        cli.run(["query"])
    assert ended.value.code == 2


def test_compact_status_and_advise(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(copied)]
    assert "would become" in output(capsys, "compact", *store, "--dry-run", "--days", "100000")
    before = json.loads(output(capsys, "status", *store, "--json"))
    reports = json.loads(output(capsys, "compact", *store, "--json", "--grace", "0s", "--days", "100000"))["reports"]
    assert sum(report["inputs"] for report in reports) == sum(table["fresh"] for table in before["tables"])
    after = json.loads(output(capsys, "status", *store, "--json"))
    assert {(table["fresh"], table["replaced"], table["missing"]) for table in after["tables"]} == {(0, 0, 0)}
    assert after["hosts"] == 6
    assert output(capsys, "compact", *store, "--days", "100000") == "nothing to compact\n"
    assert "p95" in output(capsys, "advise", *store)
    assert all(advice["evidence"] for advice in json.loads(output(capsys, "advise", *store, "--json")))
    assert "6 hosts" in output(capsys, "status", *store)


def test_a_damaged_object_fails_a_compaction_and_a_query(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = sorted(copied.glob("v1/wss/date=*/hour=*/*.parquet"))[0]
    bad.write_bytes(b"PAR1")
    store = ["--store", str(copied)]
    assert bad.name in output(capsys, "query", "wss", *store, code=1)
    assert bad.name in output(capsys, "compact", *store, "--days", "100000", code=1)
    assert "batch" in output(capsys, "query", "wss", *store, "--skip-damaged")


def test_queries_are_listed_with_their_sql(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "queries").splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(isotherm_fleet.queries())
    assert output(capsys, "queries", "--sql", "cold").startswith("-- name: cold\n")
    assert len(json.loads(output(capsys, "queries", "--json"))) == len(isotherm_fleet.queries())


def test_a_reader_that_closes_the_pipe_early_is_no_failure(made: Maker) -> None:
    command = [sys.executable, "-m", "isotherm_fleet", "query", "coverage", "-n", "0", "--store", str(made.root)]
    child = subprocess.Popen(command, cwd=PACKAGE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert (child.wait(), child.stderr.read()) == (0, b"")
    child.stderr.close()


def test_a_damaged_object_of_hosts_does_not_hide_the_rest(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = sorted(copied.glob("v1/hosts/date=*/hour=*/*.parquet"))[-1]
    bad.write_bytes(bad.read_bytes()[:-9])
    found = json.loads(output(capsys, "status", "--store", str(copied), "--json"))
    assert len(found["tables"]) == 7 and bad.name in found["coverage_error"]
    (copied / "v1/wss/date=2020-01-01").mkdir()
    again = json.loads(output(capsys, "status", "--store", str(copied), "--json"))
    assert again["tables"] == found["tables"], "a day without objects is no day"


def test_names_do_not_move_the_cursor() -> None:
    assert render.value_text("service", "a\x1b[2J\nb") == "a\ufffd[2J\ufffdb"
    assert render.value_text("service", "größe $x$") == "größe $x$"


def test_values_have_units() -> None:
    cases = [
        ("p95_bytes", 1536, "1.5 KiB"),
        ("wss_change_bytes", -(3 << 30), "-3.0 GiB"),
        ("age_ms", 90_000, "1.5 min"),
        ("x_permille", 155, "15.5%"),
        ("refault_ppm_per_min", 2000, "0.200%"),
        ("day_time_s", 0, "1970-01-01 00:00Z"),
        ("longest_gap_s", 7200, "2.0 h"),
        ("hosts", 3, "3"),
        ("request_min_bytes", None, "-"),
    ]
    for column, value, text in cases:
        assert render.value_text(column, value) == text
