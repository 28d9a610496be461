"""What the Spark programs share: a session, addresses, data frames of tables, and answers of queries.

`isotherm_fleet` has to be importable where the driver runs. The manifests decide on the driver which objects count, and
Spark gets their list. Rows and their order equal DuckDB's: `make test-fleet` compares them.
"""

from __future__ import annotations

from typing import Any

from isotherm_fleet import contract, globs, sqlfile
from isotherm_fleet.duck import Duck
from isotherm_fleet.fleet import Fleet
from isotherm_fleet.store import Store
from isotherm_fleet.window import Window

SPARK_TYPES = {"bigint": "bigint", "varchar": "string", "double": "double", "timestamp": "timestamp"}
SCHEMES = {"s3": "s3a", "gs": "gs", "gcs": "gs", "az": "abfs", "abfs": "abfs", "abfss": "abfss", "hdfs": "hdfs"}


def session(name: str, **config: str) -> Any:
    """A Spark session with the settings that equal answers take: times in UTC, and errors for overflows."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in (settings | config).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def uris(store: Store, paths: list[str]) -> list[str]:
    """Addresses of objects as Hadoop's file systems have them."""
    if store.is_local:
        return [f"file://{store.full(path)}" for path in paths]
    found = []
    for path in paths:
        scheme, rest = store.uri(path).split("://", 1)
        found.append(f"{SCHEMES.get(scheme, scheme)}://{rest}")
    return found


def read(spark: Any, store: Store, table: str, paths: list[str]) -> Any:
    """A data frame of a table's columns; empty if there are no objects."""
    columns = contract.TABLES[table].columns
    schema = ", ".join(f"{name} {SPARK_TYPES[kind]}" for name, kind in columns.items())
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*uris(store, paths)).select(*columns)


def view(spark: Any, store: Store, table: str, paths: list[str], window: Window, service: str | None) -> None:
    """Makes the view of a table: rows of the window and of services that match the glob, and the column `time_s`."""
    from pyspark.sql import functions as f

    rows = read(spark, store, table, paths).withColumn("time_s", f.unix_seconds("time"))
    bounds = [f.timestamp_seconds(f.lit(time_s)) for time_s in (window.since_s, window.until_s)]
    rows = rows.filter((f.col("time") >= bounds[0]) & (f.col("time") < bounds[1]))
    if service is not None and "service" in rows.columns:
        rows = rows.filter(f.col("service").rlike(f"^(?:{globs.regex(service)})$"))
    rows.createOrReplaceTempView(table)
    for name, text in sqlfile.DERIVED.get(table, {}).items():
        spark.sql(text).createOrReplaceTempView(name)


def ask(
    spark: Any, fleet: Fleet, query: sqlfile.Query, window: Window, service: str | None, params: dict[str, object]
) -> Any:
    """The answer of a query as a data frame, in the order of the query. Objects that are of a newer version or no
    rollups are refused, by their metadata.
    """
    paths = {table: fleet.resolve(table, window) for table in query.tables}
    with Duck(fleet.store) as duck:
        for table in query.tables:
            duck.check(table, paths[table])
    for table in query.tables:
        view(spark, fleet.store, table, paths[table], window, service)
    return spark.sql(query.spark_text, args=query.values(params, window.since_s, window.until_s))
