"""Spark beside DuckDB: every query gives equal rows in equal order, and a compaction on Spark writes the rows that
DuckDB would.

Spark runs as `local-cluster[2,1,1024]`: a driver and two executors that are processes of their own, so what executors
lack shows.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from maker import SERVICES, START, Maker, host_key, host_row, schema, wss_values

import isotherm_fleet
from isotherm_fleet import contract, sqlfile
from isotherm_fleet.compact import Compactor, Options
from isotherm_fleet.errors import FleetError
from isotherm_fleet.fleet import Fleet
from isotherm_fleet.store import open_store

PARAMS: dict[str, dict[str, object]] = {"change": {"days": 1}, "outliers": {"min_score": 5}}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two executors; skipped without Spark or Java."""
    pytest.importorskip("pyspark", reason="skipped: needs pyspark (scripts/setup.sh fleet)")
    if shutil.which("java") is None:
        pytest.skip("skipped: needs java (scripts/setup.sh fleet)")
    import compact as spark_compact
    import engine

    folder = tmp_path_factory.mktemp("spark")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder), "PYSPARK_PYTHON": sys.executable}
    session = engine.session(
        "test",
        **{
            "spark.master": "local-cluster[2,1,1024]",
            "spark.executor.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        **spark_compact.SETTINGS,
    )
    session.sparkContext.setLogLevel("ERROR")
    session.sparkContext.addPyFile(str(spark_compact.package_zip(folder)))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, made: Maker) -> Maker:
    """A store with two days, compacted objects, and late ones beside them."""
    maker = Maker(tmp_path_factory.mktemp("spark-store"), seed=made.seed, hosts=6, intervals_per_hour=3)
    maker.fill(26)
    list(Compactor(open_store(str(maker.root)), Options(bucket_bytes=60_000)).run(["wss", "idle", "hosts"]))
    maker.hour(0, START, 1)
    a_part_of_an_interval(maker)
    return maker


def a_part_of_an_interval(maker: Maker) -> None:
    """Two minutes of a host in which a service ran for one."""
    time, random_ = START + dt.timedelta(hours=3), random.Random(1)
    values = wss_values(90_000, random_) | {"covered_ns": 60 * 10**9, "wss_10m_max_bytes": 1 << 30}
    key = {"time": time, "host": host_key(9), "service": SERVICES[0], "cgroup": "/a"}
    maker.write("wss", [key | values], host_key(9), time)
    maker.write("hosts", [host_row(9, time, random_) | {"covered_ns": 120 * 10**9}], host_key(9), time)


@pytest.mark.parametrize("name", list(sqlfile.queries()))
def test_a_query_gives_equal_rows(spark: Any, small: Maker, name: str) -> None:
    import engine

    fleet, query, params = isotherm_fleet.open(str(small.root)), sqlfile.query(name), PARAMS.get(name, {})
    for service in (None, "*e*"):
        expected = fleet.ask(query, service=service, params=params)
        found = [row.asDict() for row in engine.ask(spark, fleet, query, expected.window, service, params).collect()]
        assert expected.rows() and found == expected.rows()


def test_an_object_of_a_newer_version_is_refused(spark: Any, copied: Path) -> None:
    import engine

    path = sorted(copied.glob("v1/wss/date=*/hour=*/*.parquet"))[0]
    rows = pq.read_table(path)
    pq.write_table(rows.replace_schema_metadata(schema("wss", "2").metadata), path)
    fleet, query = isotherm_fleet.open(str(copied)), sqlfile.query("wss")
    with pytest.raises(FleetError, match=f"{path.name}: it has version 2"):
        engine.ask(spark, fleet, query, fleet.window(None, None, "7d"), None, {})


def test_parameters_are_equal_too(spark: Any, small: Maker) -> None:
    import engine

    fleet, query = isotherm_fleet.open(str(small.root)), sqlfile.query("wss")
    expected = fleet.ask(query, params={"age": "1h"})
    found = engine.ask(spark, fleet, query, expected.window, None, {"age": "1h"}).collect()
    assert [row.asDict() for row in found] == expected.rows()


def compacted_rows(root: Path, table: str) -> dict[str, Any]:
    """The rows of compacted objects by day and bucket."""
    paths = sorted(root.glob(f"v1/{table}/date=*/bucket=*/*.parquet"))
    return {f"{path.parent.parent.name}/{path.parent.name}": pq.read_table(path, partitioning=None) for path in paths}


def test_a_compaction_on_spark_writes_what_duckdb_would(spark: Any, tmp_path: Path) -> None:
    import compact as spark_compact

    maker = Maker(tmp_path / "a", seed=9, hosts=3, intervals_per_hour=3)
    maker.fill(2)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    tables = ["wss", "heat", "hosts"]
    for is_second in (False, True):
        # The second time one bucket: how many there are follows from sizes, and the two writers compress differently.
        bucket_bytes = 10**9 if is_second else 20_000
        options = Options(grace_s=-60, bucket_bytes=bucket_bytes, max_per_bucket=1)
        list(Compactor(open_store(str(tmp_path / "a")), options).run(tables))
        reports = list(spark_compact.SparkCompactor(spark, open_store(str(tmp_path / "b")), options).run(tables))
        assert [report.table for report in reports if report.rows] == tables
        for table in (*tables, "heat_1h"):
            ours, theirs = (compacted_rows(tmp_path / name, table) for name in "ab")
            assert ours.keys() == theirs.keys() and ours
            for key, rows in ours.items():
                assert rows.schema.names == theirs[key].schema.names
                assert rows.to_pylist() == theirs[key].to_pylist(), f"{table} {key}"
        names = [
            sorted(str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*.*")) for name in "ab"
        ]
        assert names[0] == names[1], "names follow from the inputs"
        if not is_second:
            for name in "ab":
                Maker(tmp_path / name, seed=9, hosts=1, intervals_per_hour=3).hour(0, START + dt.timedelta(hours=5))
    answers = [Fleet(open_store(str(tmp_path / name))).query("wss").rows() for name in "ab"]
    assert answers[0] == answers[1]


def test_a_damaged_object_holds_up_no_other_on_spark(spark: Any, copied: Path) -> None:
    import compact as spark_compact

    path = sorted(copied.glob("v1/actions/date=*/hour=*/*.parquet"))[0]
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    compactor = spark_compact.SparkCompactor(spark, open_store(str(copied)), Options(grace_s=-60))
    reports = list(compactor.run(["actions"]))
    assert compactor.damaged == [str(path.relative_to(copied))]
    assert [report.outputs for report in reports] == [1, 1] and path.exists()


def test_the_metadata_of_spark_is_that_of_the_format(spark: Any, tmp_path: Path) -> None:
    import compact as spark_compact

    Maker(tmp_path, hosts=1, intervals_per_hour=1).fill(1)
    list(spark_compact.SparkCompactor(spark, open_store(str(tmp_path)), Options(grace_s=-60)).run(["actions"]))
    (path,) = tmp_path.glob("v1/actions/date=*/*/*.parquet")
    found = {key.decode(): value.decode() for key, value in pq.read_schema(path).metadata.items()}
    assert found.items() >= contract.metadata("actions").items()
