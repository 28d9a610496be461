"""Answers for people: tables and bars on a terminal, PNG and SVG by matplotlib where it is installed.

Units come from the end of a column's name, which the queries keep to: `_bytes`, `_ms`, `_s`, `_time_s`, `_permille`,
`_ppm...`.
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import FleetError, UsageError
from .window import iso

Row = dict[str, Any]
BAR_CELLS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bytes_text(value: float) -> str:
    """A size as in 1.5 GiB."""
    sign, size = ("-" if value < 0 else ""), abs(float(value))
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            return f"{sign}{size:.0f} {unit}" if unit == "B" else f"{sign}{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit returns")


def duration_text(seconds: float) -> str:
    """A duration as in 1.5 h."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def printable(text: str) -> str:
    """The same without characters that a terminal obeys: names of processes are anybody's."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def value_text(column: str, value: Any) -> str:
    """A value with its unit, by the name of its column; `-` for none."""
    if value is None:
        return "-"
    if column.endswith("_bytes") or "_bytes_per_" in column:
        return bytes_text(value)
    if column.endswith("_time_s"):
        return iso(value)
    if column.endswith("_permille"):
        return f"{value / 10:.1f}%"
    if "_ppm" in column:
        return f"{value / 1e4:.3f}%"
    if column.endswith("_ms"):
        return duration_text(value / 1000)
    if column.endswith("_s"):
        return duration_text(value)
    return printable(str(value))


def heading(column: str) -> str:
    """The heading of a column: its name without the unit that its values show."""
    for end in ("_bytes", "_time_s", "_permille", "_ms", "_s"):
        if column.endswith(end):
            return column.removesuffix(end).upper()
    return column.replace("_bytes_per_", "_per_").replace("_ppm_per_", "_per_").upper()


def table_text(columns: list[str], rows: Iterable[Row]) -> str:
    """A table with aligned columns. A column that is empty in every row is left out."""
    cells = [[value_text(column, row[column]) for column in columns] for row in rows]
    shown = [n for n in range(len(columns)) if not cells or any(line[n] not in ("-", "") for line in cells)]
    lines = [[heading(columns[n]) for n in shown], *([line[n] for n in shown] for line in cells)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(shown))]
    is_text = [heading(columns[n]) in ("SERVICE", "HOST", "HOSTNAME", "FLAGS") for n in shown]
    aligned = (
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, is_text, strict=True)
        )
        for line in lines
    )
    return "\n".join(line.rstrip() for line in aligned) + "\n"


def bars_text(labels: list[str], values: list[float], column: str) -> str:
    """A bar for each value, on one scale from 0."""
    longest, top = max(map(len, labels), default=0), max((abs(value) for value in values), default=0) or 1
    lines = []
    for label, value in zip(labels, values, strict=True):
        eighths = round(abs(value) / top * BAR_CELLS * 8)
        bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
        lines.append(f"{label.ljust(longest)}  {value_text(column, int(value)):>11}  {bar}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class ChartSpec:
    """How a query is drawn: a bar for each row, or a line over `label`."""

    label: str
    values: tuple[str, ...]
    is_line: bool = False


CHARTS = {
    "wss": ChartSpec("service", ("p50_bytes", "p95_bytes", "p99_bytes")),
    "cold": ChartSpec("age_ms", ("cold_bytes", "refault_bytes_per_min"), is_line=True),
    "tier": ChartSpec("service", ("fits_bytes",)),
    "huge": ChartSpec("service", ("hot_small_anon_bytes", "hot_small_bytes")),
    "outliers": ChartSpec("hostname", ("wss_mean_bytes", "median_bytes")),
    "change": ChartSpec("service", ("wss_change_bytes",)),
    "coverage": ChartSpec("hostname", ("intervals", "missing")),
    "trend": ChartSpec("day_time_s", ("p95_bytes",), is_line=True),
}


def spec_of(query: str, columns: list[str]) -> ChartSpec:
    """How to draw a query: as listed, or for one that is not, its first column and its first size."""
    if query in CHARTS:
        return CHARTS[query]
    sizes = tuple(column for column in columns[1:] if column.endswith("_bytes"))[:1]
    if not sizes:
        raise UsageError(f"query {query} has no column of bytes to draw")
    return ChartSpec(columns[0], sizes)


def chart_text(query: str, columns: list[str], rows: list[Row]) -> str:
    """Bars on a terminal, for each value of the chart."""
    spec = spec_of(query, columns)
    parts = []
    for column in spec.values:
        labels = [value_text(spec.label, row[spec.label]) for row in rows]
        if spec.label == "day_time_s":
            labels = [f"{row['service']} {label[:10]}" for row, label in zip(rows, labels, strict=True)]
        parts.append(f"{heading(column)}\n" + bars_text(labels, [float(row[column] or 0) for row in rows], column))
    return "\n".join(parts)


def chart_image(query: str, about: str, columns: list[str], rows: list[Row], kind: str) -> bytes:
    """A picture of the answer: `kind` is `png` or `svg`."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise FleetError(
            f"draw {query}: {error}; install isotherm-fleet[charts], or give --chart - for one in the terminal"
        ) from error
    matplotlib.rcParams["svg.hashsalt"] = query
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    spec = spec_of(query, columns)
    (_draw_lines if spec.is_line else _draw_bars)(axes, spec, rows)
    axes.set_title(about, fontsize=10)
    if len(spec.values) > 1 or spec.label == "day_time_s":
        axes.legend(fontsize=8)
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    pyplot.close(figure)
    return out.getvalue()


def _scale(column: str) -> tuple[float, str]:
    return (2**30, "GiB") if "_bytes" in column else (1.0, "")


def _plain(label: Any) -> str:
    """A label that is no formula: matplotlib takes dollars for that."""
    return printable(str(label)).replace("$", r"\$")


def _draw_bars(axes: Any, spec: ChartSpec, rows: list[Row]) -> None:
    factor, unit = _scale(spec.values[0])
    height = 0.8 / len(spec.values)
    for n, column in enumerate(spec.values):
        places = [place + n * height for place in range(len(rows))]
        axes.barh(
            places, [float(row[column] or 0) / factor for row in rows], height=height, label=heading(column).lower()
        )
    axes.set_yticks(
        [place + 0.4 - height / 2 for place in range(len(rows))], [_plain(row[spec.label]) for row in rows], fontsize=8
    )
    axes.invert_yaxis()
    axes.set_xlabel(unit)


def _draw_lines(axes: Any, spec: ChartSpec, rows: list[Row]) -> None:
    if spec.label == "day_time_s":
        for service in dict.fromkeys(row["service"] for row in rows):
            mine = [row for row in rows if row["service"] == service]
            points = [row[spec.values[0]] / 2**30 for row in mine]
            days = [dt.datetime.fromtimestamp(row[spec.label], dt.timezone.utc) for row in mine]
            axes.plot(days, points, marker="o", label=_plain(service))
        axes.tick_params(axis="x", labelrotation=30)
        axes.set_ylabel("GiB")
        return
    ages = [row[spec.label] / 1000 for row in rows]
    for column in spec.values:
        factor, unit = _scale(column)
        axes.plot(ages, [row[column] / factor for row in rows], marker="o", label=f"{heading(column).lower()}, {unit}")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_xlabel("age, s")
