"""DuckDB over a store: views of what counts, and the answers of queries.

`store` resolves the objects, `sqlfile` has the texts. Each query gets explicit lists of objects, never a pattern: a
pattern would count what a compaction has replaced. Memory is bounded; what does not fit goes to a temporary folder.

Before rows are read, the metadata of every object is checked, so that an object of a newer version or a damaged one
is named.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from . import contract, globs, sqlfile
from .contract import Table
from .errors import DamagedObject, FleetError
from .store import Store
from .window import Window

DEFAULT_MEMORY = "256MiB"
DEFAULT_THREADS = 2
ROW_GROUP_ROWS = 122_880
MAX_KEY_VALUES = 100_000
"""Different texts in a column up to which rows are sorted by their numbers."""

_UNEXPECTED_SQL = """
    with objects as materialized (
        select file_name,
            max(case when decode(key) = $format_key then decode(value) end) as format,
            max(case when decode(key) = $version_key then decode(value) end) as version,
            max(case when decode(key) = $table_key then decode(value) end) as of_table
        from parquet_kv_metadata($uris) group by file_name
    )
    select file_name, format, version, of_table from objects
    where format is distinct from $format or version is distinct from $version or of_table is distinct from $table
        or (select count(*) from objects) < $count
"""


class Duck:
    """A connection to DuckDB for one store. Use it as a context manager: it has a temporary folder."""

    def __init__(self, store: Store, memory: str = DEFAULT_MEMORY, threads: int = DEFAULT_THREADS) -> None:
        """`memory` is DuckDB's limit, as in 512MiB."""
        self.store = store
        self._spill = tempfile.TemporaryDirectory(prefix="isotherm-fleet-")
        self._keys: dict[str, list[str]] = {}
        """Texts by which rows are sorted that have an enum, by column."""
        config = {
            "memory_limit": memory,
            "threads": str(threads),
            "temp_directory": self._spill.name,
            "autoinstall_known_extensions": "false",
            "TimeZone": "UTC",
        }
        try:
            self.con: Any = duckdb.connect(":memory:", config=config)
        except duckdb.Error as error:
            self._spill.cleanup()
            raise FleetError(f"start DuckDB with {memory} of memory and {threads} threads: {error}") from error
        self.con.execute("set enable_progress_bar = false")
        if not store.is_local:
            self.con.register_filesystem(store.fs)

    def __enter__(self) -> Duck:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()
        self._spill.cleanup()

    def check(self, table: str, paths: list[str]) -> None:
        """Refuses objects that are damaged, of another table, or of a newer version, and names them."""
        if not paths:
            return
        uris = {self.store.uri(path): path for path in paths}
        values = {
            "uris": list(uris),
            "count": len(uris),
            "format_key": contract.META_FORMAT,
            "version_key": contract.META_VERSION,
            "table_key": contract.META_TABLE,
            "format": contract.FORMAT,
            "version": str(contract.VERSION),
            "table": table,
        }
        with self._named(paths):
            rows = self.con.execute(_UNEXPECTED_SQL, values).fetchall()
        expected = (contract.FORMAT, str(contract.VERSION), table)
        if any(row[1:] == expected for row in rows):
            # Some have no metadata at all, and so no row; all others are listed.
            rows = [(uri, None, None, None) for uri in sorted(uris.keys() - {row[0] for row in rows})]
        for uri, form, version, of_table in rows:
            path = uris.get(uri, uri)
            if form == contract.FORMAT and of_table == table:
                contract.check_version(version, path)
            found = f"format {form or 'none'} and table {of_table or 'none'}"
            raise DamagedObject(
                f"read {path}: by its metadata it has {found}, and not {contract.FORMAT} and {table}; remove it if it "
                "is no rollup",
                [path],
            )

    def view(self, table: Table, paths: list[str], window: Window | None, service: str | None) -> None:
        """Makes the view of a table: rows of the window and of services that match, and the column `time_s`."""
        columns = ", ".join(f'"{name}"' for name in table.columns)
        name = f"rows_of_{table.name}"
        if paths:
            self.check(table.name, paths)
            with self._named(paths):
                uris = [self.store.uri(path) for path in paths]
                self.con.read_parquet(uris, hive_partitioning=False).create_view(name, replace=True)
        else:
            nulls = ", ".join(f'cast(null as {kind}) as "{column}"' for column, kind in table.columns.items())
            self.con.execute(f"create or replace view {name} as select {nulls} where false")
        conditions = ["true"]
        if window is not None:
            conditions.append(f"time >= to_timestamp({window.since_s}) and time < to_timestamp({window.until_s})")
        if service is not None and "service" in table.columns:
            pattern = globs.regex(service).replace("'", "''")
            conditions.append(f"regexp_full_match(service, '{pattern}')")
        self.con.execute(
            f"create or replace view {table.name} as select {columns}, epoch_us(time) // 1000000 as time_s "
            f"from {name} where {' and '.join(conditions)}"
        )
        for derived, text in sqlfile.DERIVED.get(table.name, {}).items():
            self.con.execute(f"create or replace view {derived} as {text}")

    def fetch(self, sql: str, values: dict[str, Any], paths: list[str]) -> Any:
        """The answer of a query as an Arrow table. `paths` are the objects under its views, for errors."""
        with self._named(paths):
            return self.con.sql(sql, params=values).to_arrow_table()

    def merge_view(self, table: Table, paths: list[str]) -> int:
        """Makes the view of all rows of objects, with all of their columns, also such as this version does not know.
        Returns the rows.
        """
        uris = [self.store.uri(path) for path in paths]
        with self._named(paths):
            # Objects with unequal columns take a slower and larger reader.
            names = self.con.execute("select count(*) from parquet_schema($1) group by name", [uris]).fetchall()
            is_mixed = any(count != len(uris) for (count,) in names)
            rows = self.con.read_parquet(uris, hive_partitioning=False, union_by_name=is_mixed)
            rows.create_view(f"rows_of_{table.name}", replace=True)
            self._number_keys(table)
            found = self.con.execute("select sum(num_rows) from parquet_file_metadata($1)", [uris]).fetchone()
        return int(found[0])

    def _number_keys(self, table: Table) -> None:
        """Makes an enum of each text by which rows are sorted, in the order of the texts: sorting by numbers takes half
        of the time. One pass over the objects, for all columns together.
        """
        columns = [column for column in table.sort if table.columns[column] == "varchar"]
        listed = ", ".join(columns)
        self.con.execute(f"create or replace temp table keys as select distinct {listed} from rows_of_{table.name}")
        self._keys = {}
        for column in columns:
            texts = f"select distinct {column} from keys where {column} is not null"
            (count,) = self.con.execute(f"select count(*) from ({texts})").fetchone()
            if 0 < count <= MAX_KEY_VALUES:
                self.con.execute(f"create type key_{column} as enum ({texts} order by 1)")
                values = self.con.execute(f"select unnest(enum_range(null::key_{column}))").fetchall()
                self._keys[column] = [value for (value,) in values]
        self.con.execute("drop table keys")

    def _in_bucket(self, table: Table, number: int, buckets: int) -> str:
        """The condition that rows of a bucket meet."""
        column = table.bucket_column
        if column not in self._keys:
            return f"cast('0x' || substr(md5({column}), 1, 2) as integer) % {buckets} = {number}"
        # Row groups without any of a list of texts are passed over unread.
        here = [text for text in self._keys[column] if bucket_of(text, buckets) == number]
        return f"{column} in ({_listed(here)})" if here else "false"

    def write_bucket(self, table: Table, paths: list[str], bucket: tuple[int, int], target: Path) -> int:
        """Writes the rows of a bucket (its number, and how many there are), sorted. Returns the rows; `paths` are for
        errors.
        """
        number, buckets = bucket
        condition = self._in_bucket(table, number, buckets) if buckets > 1 else "true"
        sql = self._sorted(table, f"select * from rows_of_{table.name} where {condition}")
        with self._named(paths):
            return self._copy(sql, table.name, target)

    def _sorted(self, table: Table, sql: str) -> str:
        """A select of all columns of a table, its rows sorted."""
        numbers = ", ".join(f"cast({column} as key_{column}) as {column}" for column in self._keys)
        texts = ", ".join(f"cast({column} as varchar) as {column}" for column in self._keys)
        inner, outer = (f"* replace ({columns})" if self._keys else "*" for columns in (numbers, texts))
        return f"select {outer} from (select {inner} from ({sql}) order by {', '.join(table.sort)})"

    def write_hourly(self, table: Table, source: Path, target: Path) -> None:
        """Writes the sibling of a compacted object: its sums by hour."""
        sums = contract.HOURLY[table.name]
        keys = [column for column in table.columns if column not in ("time", *sums)]
        summed = ", ".join(f"cast(sum({column}) as bigint) as {column}" for column in sums)
        sql = (
            f"select date_trunc('hour', time) as time, {', '.join(keys)}, {summed} "
            f"from read_parquet({_quoted(source)}, hive_partitioning = false) group by all"
        )
        self._copy(self._sorted(table, sql), table.name, target)

    def _copy(self, sql: str, table: str, target: Path) -> int:
        """Writes the rows of a select as an object of a table. Returns the rows."""
        pairs = ", ".join(f"'{key}': '{value}'" for key, value in contract.metadata(table).items())
        form = f"format parquet, compression zstd, row_group_size {ROW_GROUP_ROWS}, kv_metadata {{{pairs}}}"
        row = self.con.execute(f"copy ({sql}) to {_quoted(target)} ({form})").fetchone()
        return int(row[0])

    def newest_s(self, paths: list[str]) -> int | None:
        """The end of the newest interval in objects of `hosts`, in seconds since 1970; from metadata alone where
        there are statistics.
        """
        self.check("hosts", paths)
        with self._named(paths):
            sql = "select max(epoch_us(time)) // 1000000 from read_parquet($uris, hive_partitioning = false)"
            row = self.con.execute(sql, {"uris": [self.store.uri(path) for path in paths]}).fetchone()
        return None if row is None or row[0] is None else int(row[0]) + contract.INTERVAL_S

    @contextlib.contextmanager
    def _named(self, paths: list[str]) -> Iterator[None]:
        """Turns an error of DuckDB into one that names the object that cannot be read."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise FleetError(f"query {self.store.url}: {_first_line(error)}; give more by --memory") from error
        except (duckdb.Error, OSError) as error:
            unreadable = self.unreadable(paths, error)
            raise unreadable or FleetError(f"query {self.store.url}: {_first_line(error)}") from error

    def unreadable(self, paths: list[str], error: Exception) -> FleetError | None:
        """The error that names the objects which are not there or cannot be read to the end; `None` if all can."""
        missing, damaged = self._unreadable(paths)
        if missing:
            return MissingObject(missing)
        if not damaged:
            return None
        shown = ", ".join(damaged[:3]) + (f" and {len(damaged) - 3} more" if len(damaged) > 3 else "")
        return DamagedObject(
            f"read {shown} in {self.store.url}: damaged ({_first_line(error)}); restore it, or remove it, "
            "or give --skip-damaged",
            damaged,
        )

    def _unreadable(self, paths: list[str]) -> tuple[list[str], list[str]]:
        """Objects that are not there, and objects that cannot be read to the end. Reads them one by one, after an
        error only.
        """
        missing: list[str] = []
        damaged: list[str] = []
        for path in paths:
            try:
                sql = "select hash(columns(*)) from read_parquet($1, hive_partitioning = false)"
                self.con.execute(sql, [self.store.uri(path)])
                while self.con.fetchmany(100_000):
                    pass
            except (duckdb.Error, OSError):
                (damaged if self.store.exists(path) else missing).append(path)
        return missing, damaged


class MissingObject(FleetError):
    """An object that counts is not there. After a compaction has removed it beside a query, resolving once more
    helps.
    """

    def __init__(self, paths: list[str]) -> None:
        shown = ", ".join(paths[:3])
        super().__init__(f"read {shown}: not there, although it counts; restore it from a copy of the store")
        self.paths = paths


def bucket_of(text: str, buckets: int) -> int:
    """The bucket of a service or host."""
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:2], 16) % buckets


def _quoted(text: Path | str) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _listed(texts: list[str]) -> str:
    return ", ".join(map(_quoted, texts))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
