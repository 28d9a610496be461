"""Whether DuckDB and Spark give equal rows for every query over a store; prints the share that is equal, and Spark's
time.

    python spark_equal.py STORE SINCE
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "spark"))

import engine

import isotherm_fleet


def main(store: str, since: str) -> None:
    """Asks both, query by query."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = engine.session(
        "bench", **{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    fleet, equal, seconds = isotherm_fleet.open(store), [], {}
    for name, query in isotherm_fleet.queries().items():
        params: dict[str, object] = {"days": 1} if name == "change" else {}
        expected = fleet.ask(query, since=since, params=params)
        began = time.monotonic()
        found = [row.asDict() for row in engine.ask(spark, fleet, query, expected.window, None, params).collect()]
        seconds[name] = round(time.monotonic() - began, 2)
        equal.append(bool(found == expected.rows()))
    spark.stop()
    print(json.dumps({"equal": sum(equal) / len(equal), "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
