"""Compacts a store on Spark: the plans, names and manifests of `isotherm_fleet.compact`, with executors that merge.

    spark-submit fleet/spark/compact.py --store URL [--table NAME]... [--days N] [--keep-days N] [--grace 1h]

Executors need pyarrow, and what fsspec needs for the store. `isotherm_fleet` is sent to them. Each bucket is sorted by
Spark and written by one task, through pyarrow: Spark's own writer cannot set the keys of the format in the metadata.
A task that runs twice writes the same object under the same name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine import session, uris

import isotherm_fleet
from isotherm_fleet import compact, contract
from isotherm_fleet.contract import Table
from isotherm_fleet.duck import ROW_GROUP_ROWS, Duck
from isotherm_fleet.errors import FleetError, UsageError
from isotherm_fleet.store import Store, open_store
from isotherm_fleet.window import duration_s

BUCKET = "isotherm_bucket"
SETTINGS = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ROW_GROUP_ROWS)}
"""A batch becomes a row group."""


class SparkCompactor(compact.Compactor):
    """As `Compactor`; the merge runs on Spark."""

    def __init__(self, spark: Any, store: Store, options: compact.Options) -> None:
        super().__init__(store, options)
        self.spark = spark

    def merge(self, table: Table, planned: compact.Plan) -> tuple[list[str], int, int]:
        """Writes the compacted objects. Returns their paths, rows and bytes."""
        paths = list(planned.inputs)
        with Duck(self.store, self.options.memory, self.options.threads) as duck:
            duck.check(table.name, paths)
            try:
                return self._merged(table, planned)
            except FleetError:
                raise
            except Exception as error:
                # Spark has errors of its own, which name no object.
                unreadable = duck.unreadable(paths, error)
                if unreadable is None:
                    raise
                raise unreadable from error

    def _merged(self, table: Table, planned: compact.Plan) -> tuple[list[str], int, int]:
        rows = self.spark.read.option("mergeSchema", "true").parquet(*uris(self.store, list(planned.inputs)))
        expected = rows.count()
        if table.name in contract.HOURLY:
            # Siblings first: what counts has one from its first moment.
            self._write(table, planned, sums_by_hour(rows, table), contract.hourly_path)
        written = self._write(table, planned, rows, str)
        count = sum(row["rows"] for row in written)
        compact.check_rows(planned, expected, count)
        return sorted(row["path"] for row in written), count, sum(row["bytes"] for row in written)

    def _write(self, table: Table, planned: compact.Plan, rows: Any, path_of: Callable[[str], str]) -> list[Any]:
        """Writes rows by bucket, sorted. Returns the path, rows and bytes of each object."""
        from pyspark.sql import functions as f

        hashed = f.conv(f.substring(f.md5(f.col(table.bucket_column).cast("binary")), 1, 2), 16, 10).cast("int")
        sorted_rows = (
            rows.withColumn(BUCKET, hashed % planned.buckets)
            .repartition(planned.buckets, BUCKET)
            .sortWithinPartitions(BUCKET, *table.sort)
        )
        outputs = {bucket: path_of(planned.output(bucket)) for bucket in range(planned.buckets)}
        write = writer(self.store.url, contract.metadata(table.name), outputs)
        return list(sorted_rows.mapInArrow(write, "path string, rows long, bytes long").collect())


def sums_by_hour(rows: Any, table: Table) -> Any:
    """The rows of a sibling."""
    from pyspark.sql import functions as f

    sums = contract.HOURLY[table.name]
    keys = [column for column in table.columns if column not in ("time", *sums)]
    hour = f.date_trunc("hour", f.col("time")).alias("time")
    added = [f.sum(column).cast("bigint").alias(column) for column in sums]
    return rows.groupBy(hour, *keys).agg(*added).select(*table.columns)


def writer(url: str, meta: dict[str, str], outputs: dict[int, str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task does: one object for each bucket of its rows, which are sorted by bucket."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow.compute as pc

        from isotherm_fleet.store import open_store

        store = open_store(url)
        bucket, current = -1, None
        for batch in batches:
            for here in pc.unique(batch.column(BUCKET)).to_pylist():
                rows = batch.filter(pc.equal(batch.column(BUCKET), here)).drop_columns([BUCKET])
                if current is None or here != bucket:
                    if current is not None:
                        yield current.close()
                    bucket, current = here, BucketObject(store, outputs[here], rows.schema.with_metadata(meta))
                current.add(rows)
        if current is not None:
            yield current.close()

    return write


class BucketObject:
    """An object that a task writes."""

    def __init__(self, store: Store, path: str, schema: Any) -> None:
        import pyarrow.parquet as pq

        self.store, self.path, self.schema, self.rows = store, path, schema, 0
        self.part = compact.Part(store, path.rsplit("/", 2)[0])
        self.parquet = pq.ParquetWriter(self.part.path, schema, compression="zstd")

    def add(self, rows: Any) -> None:
        """Writes rows."""
        self.parquet.write_batch(rows.cast(self.schema), row_group_size=ROW_GROUP_ROWS)
        self.rows += rows.num_rows

    def close(self) -> Any:
        """Stores the object. Returns what the driver gets of it: a batch of one row."""
        import pyarrow as pa

        self.parquet.close()
        size = self.part.path.stat().st_size
        with self.part as part:
            self.store.put_file(self.path, part)
        counts = [pa.array([count], pa.int64()) for count in (self.rows, size)]
        return pa.RecordBatch.from_arrays([pa.array([self.path]), *counts], ["path", "rows", "bytes"])


def package_zip(folder: Path) -> Path:
    """The package and these programs as a zip file, for executors."""
    source = Path(isotherm_fleet.__file__).parent
    target = folder / "isotherm_fleet.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(source.rglob("*")):
            if path.suffix in (".py", ".sql"):
                archive.write(path, f"isotherm_fleet/{path.relative_to(source)}")
        for name in ("engine.py", "compact.py"):
            archive.write(Path(__file__).parent / name, name)
    return target


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compact.py", description="Compacts a store of rollups on Spark.")
    parser.add_argument("--store", required=True, metavar="URL", help="the store: a folder, or a URL that fsspec knows")
    parser.add_argument("--table", action="append", choices=list(contract.TABLES), help="only this table")
    parser.add_argument("--days", type=int, default=14, help="how many days back are compacted (%(default)s)")
    parser.add_argument("--keep-days", type=int, help="remove days that are older than this (keep all)")
    parser.add_argument("--grace", metavar="TIME", default="1h", help="how long replaced objects stay (%(default)s)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 done, 1 failed or objects were damaged, 2 wrong usage."""
    args = _arguments(argv)
    try:
        options = compact.Options(
            grace_s=duration_s(args.grace),
            keep_days=args.keep_days,
            warn=lambda line: print(line, file=sys.stderr),
        )
        spark = session("isotherm-fleet compact", **SETTINGS)
        with tempfile.TemporaryDirectory() as folder:
            spark.sparkContext.addPyFile(str(package_zip(Path(folder))))
            compactor = SparkCompactor(spark, open_store(args.store), options)
            for report in compactor.run(args.table or list(contract.TABLES), args.days):
                if report.inputs or report.removed or report.note:
                    print(report.to_dict(), flush=True)
        spark.stop()
    except UsageError as error:
        print(f"compact.py: {error}", file=sys.stderr)
        return 2
    except FleetError as error:
        print(f"compact.py: {error}", file=sys.stderr)
        return 1
    return 1 if compactor.damaged else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
