"""Reports of a modelled fleet against the truth of the model. `make fleet-model` builds the program that writes it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import isotherm_fleet
from isotherm_fleet import contract
from isotherm_fleet.compact import Compactor, Options
from isotherm_fleet.store import open_store

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "target/release/isotherm-fleet-model"
MAX_ERROR = 0.02
"""Of a percentile. Steps of the scale are 9% apart, of which a working set of ten minutes takes a part."""


def model(root: Path, hosts: int) -> dict[str, Any]:
    """A compacted fleet of a day in a folder, and its truth."""
    if not MODEL.exists():
        pytest.skip("skipped: needs target/release/isotherm-fleet-model (make fleet-model)")
    command = [str(MODEL), "--hosts", str(hosts), "--days", "1", "--to", str(root)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    list(Compactor(open_store(str(root)), Options(grace_s=-60)).run(list(contract.TABLES)))
    return dict(json.loads((root / "truth.json").read_text()))


def test_percentiles_of_working_sets_are_those_of_the_model(tmp_path: Path) -> None:
    # The first three hosts have no flaw: of others the truth has hours in which they were not watched.
    truth = model(tmp_path, 3)
    assert truth["flaws"] == {}
    found = {row["service"]: row for row in isotherm_fleet.open(str(tmp_path)).query("wss").rows()}
    assert found.keys() == {service["service"] for service in truth["services"]}
    for service in truth["services"]:
        row = found[service["service"]]
        assert row["hosts"] == service["hosts"]
        for percent in (50, 95, 99):
            expected = service[f"wss_10m_p{percent}_bytes"]
            assert abs(row[f"p{percent}_bytes"] - expected) <= MAX_ERROR * expected, (row["service"], percent)


def test_coverage_finds_the_flaws_of_the_model_and_every_query_answers(tmp_path: Path) -> None:
    truth = model(tmp_path, 8)
    fleet = isotherm_fleet.open(str(tmp_path))
    flags = {row["hostname"]: row["flags"].split() for row in fleet.query("coverage").rows()}
    by_flaw = {flaw: name for name, flaw in truth["flaws"].items()}
    assert by_flaw.keys() == {"Clone", "FastClock", "Thin"}
    assert "cloned" in flags[by_flaw["Clone"]]
    assert "absent" in flags[by_flaw["Thin"]] or "thin" in flags[by_flaw["Thin"]]
    for name in isotherm_fleet.queries():
        params: dict[str, object] = {"min_score": 1, "min_hosts": 3} if name == "outliers" else {}
        assert fleet.query(name, **params).rows(), name
