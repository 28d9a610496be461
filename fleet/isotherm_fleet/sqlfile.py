"""The queries: SQL files with a header, in the subset that DuckDB and Spark share.

A header is a block of comments:

    -- name: wss
    -- about: one line
    -- tables: wss, hosts
    -- window: 7d      (or N * PARAM, so many days)
    -- sums: yes      (it takes only sums of heat, idle, refaults and huge_opportunity: sums by hour do as well)
    -- param: NAME TYPE DEFAULT what it means     (TYPE is bigint, varchar, or choices: a|b|c)

Parameters stand in the text as `:name`, which is Spark's form; `duckdb_text` gives DuckDB's. `:since_s` and
`:until_s`, the window in seconds since 1970, are there without being declared. The files read views that have the
rows of the window and of the services that were asked for, and one more column, `time_s`.

The subset, so that results are equal row by row: integer arithmetic, division only as `cast(floor(a / b) as bigint)`,
sums cast to `bigint`, discrete percentiles from running sums, no function whose result is approximate or depends on
the order of rows, and a complete `order by` at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from .contract import TABLES
from .errors import UsageError

Value = int | str

DERIVED = {
    "hosts": {
        # An interval that one boot has twice, as after a clock that was set back by hours, counts twice, since its rows
        # do. Clones have boots of their own.
        "host_times": """
            select host, time_s, max(times) as times,
                least(cast(sum(covered_ns) as bigint), max(times) * 300000000000) as covered_ns
            from (
                select host, time_s, boot_id, count(*) as times, cast(sum(covered_ns) as bigint) as covered_ns
                from hosts
                group by host, time_s, boot_id
            ) as by_boot
            group by host, time_s
        """
    }
}
"""Views that queries find beside those of the tables, by table and name: how often a host has an interval, and how much
of it is covered, in all of these."""

_MARKER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_IMPLIED = ("since_s", "until_s")


@dataclass(frozen=True)
class Param:
    """A parameter of a query."""

    name: str
    type: str
    default: Value
    about: str

    def parse(self, value: object) -> Value:
        """A value from the command line or a program, of the declared type."""
        if "|" in self.type and str(value) not in self.type.split("|"):
            raise UsageError(f"parameter {self.name}: {value!r} is none of {self.type}")
        if self.type != "bigint":
            return str(value)
        try:
            number = int(str(value))
        except ValueError:
            raise UsageError(f"parameter {self.name}: {value!r} is no integer; it is {self.about}") from None
        if number < 0:
            raise UsageError(f"parameter {self.name}: {number} is negative; it is {self.about}")
        return number


@dataclass(frozen=True)
class Query:
    """A query: its header, and its text as in the file."""

    name: str
    about: str
    tables: tuple[str, ...]
    window: str
    params: tuple[Param, ...]
    text: str
    is_sums: bool = False
    """Whether it takes nothing but sums of the tables in `contract.HOURLY`, so that sums by hour do as well."""

    def default_window(self, given: dict[str, object]) -> str:
        """How far back the window begins by default; it may follow from a parameter."""
        times, _, name = self.window.partition(" * ")
        if not name:
            return self.window
        param = next(param for param in self.params if param.name == name)
        days = param.parse(given[name]) if name in given else param.default
        return f"{max(1, int(times) * int(days))}d"

    @property
    def duckdb_text(self) -> str:
        """The text with DuckDB's form of parameters."""
        return self._with_markers("$")

    @property
    def spark_text(self) -> str:
        """The text with Spark's form of parameters."""
        return self._with_markers(":")

    def _with_markers(self, sign: str) -> str:
        """The text with markers of one engine. Both take a small number for an `int`, and would multiply as such."""
        texts = {param.name for param in self.params if param.type != "bigint"}

        def marker(match: re.Match[str]) -> str:
            name = match[1]
            return f"{sign}{name}" if name in texts else f"cast({sign}{name} as bigint)"

        return _MARKER.sub(marker, self._body)

    @property
    def _body(self) -> str:
        return re.sub(r"--[^\n]*", "", self.text).strip()

    @property
    def used(self) -> frozenset[str]:
        """Names of the parameters in the text."""
        return frozenset(_MARKER.findall(self._body))

    def values(self, given: dict[str, object], since_s: int, until_s: int) -> dict[str, Value]:
        """The value of each parameter in the text."""
        known = {param.name: param for param in self.params}
        for name in given:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise UsageError(f"query {self.name} has no parameter {name}; it has: {listed}")
        values: dict[str, Value] = {"since_s": since_s, "until_s": until_s}
        for name, param in known.items():
            values[name] = param.parse(given[name]) if name in given else param.default
        return {name: value for name, value in values.items() if name in self.used}


def parse(text: str) -> Query:
    """A query from the text of its file."""
    head: dict[str, str] = {}
    params = []
    for key, value in re.findall(r"^-- (name|about|tables|window|param|sums): (.+)$", text, re.MULTILINE):
        if key == "param":
            params.append(_param(value))
        else:
            head[key] = value.strip()
    query = Query(
        head["name"],
        head["about"],
        tuple(table.strip() for table in head["tables"].split(",")),
        head["window"],
        tuple(params),
        text,
        head.get("sums") == "yes",
    )
    unknown = [table for table in query.tables if table not in TABLES]
    undeclared = query.used - {param.name for param in params} - set(_IMPLIED)
    if unknown or undeclared:
        raise ValueError(f"query {query.name}: unknown tables {unknown}, undeclared parameters {sorted(undeclared)}")
    return query


def _param(value: str) -> Param:
    name, kind, default, about = value.split(None, 3)
    return Param(name, kind, int(default) if kind == "bigint" else default, about)


@cache
def queries() -> dict[str, Query]:
    """All queries of the package by name, in order of names."""
    folder = resources.files(__package__) / "queries"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    found = [parse(file.read_text(encoding="utf-8")) for file in files]
    return {query.name: query for query in found}


def query(name: str) -> Query:
    """The query of that name."""
    found = queries().get(name)
    if found is None:
        raise UsageError(f"no query {name}; there are: {', '.join(queries())}")
    return found
