"""The command `isotherm-fleet`. Arguments and output only: what a command does is in the other modules.

Exit codes: 0 done, 1 failed, 2 wrong usage. A reader that closes the pipe early is no failure. Progress goes to
stderr, on a terminal, for what takes longer than two seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from . import __version__, advise, compact, contract, render, sqlfile, status
from .duck import DEFAULT_MEMORY, DEFAULT_THREADS
from .errors import FleetError, UsageError
from .fleet import Answer, Fleet, Settings
from .store import open_store
from .window import duration_s

STORE_VARIABLE = "ISOTHERM_FLEET_STORE"
DEFAULT_ROWS = 30
PROGRESS_AFTER_S = 2.0


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs the command and exits."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    """Runs the command. Returns the exit code."""
    try:
        args = _parser().parse_args(argv)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What is left in the buffer must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UsageError as error:
        print(f"isotherm-fleet: {error}", file=sys.stderr)
        return 2
    except FleetError as error:
        print(f"isotherm-fleet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="isotherm-fleet", description="Queries, compaction and advice over the rollups of many hosts (Isotherm)."
    )
    parser.add_argument("--version", action="version", version=f"isotherm-fleet {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    query = commands.add_parser(
        "query", help="answer a query", description="Answers a query of `isotherm-fleet queries`."
    )
    query.add_argument("name", help="its name")
    _add_window(query)
    query.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the query")
    query.add_argument("--json", action="store_true", help="print JSON")
    query.add_argument("--parquet", metavar="FILE", type=Path, help="write Parquet")
    query.add_argument("--chart", metavar="FILE.png", help="draw it: a .png or .svg file, or - for the terminal")
    query.add_argument(
        "-n", "--rows", metavar="ROWS", type=int, default=DEFAULT_ROWS, help="rows of the table (%(default)s; 0: all)"
    )
    query.set_defaults(run=_query)

    chart = commands.add_parser("chart", help="draw a query in the terminal, or into a file")
    chart.add_argument("name", help="name of the query")
    _add_window(chart)
    chart.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the query")
    chart.add_argument(
        "-o", "--output", dest="chart", metavar="FILE.png", default="-", help="a .png or .svg file (the terminal)"
    )
    chart.add_argument(
        "-n", "--rows", metavar="ROWS", type=int, default=DEFAULT_ROWS, help="rows that are drawn (%(default)s; 0: all)"
    )
    chart.set_defaults(run=_query, json=False, parquet=None)

    queries = commands.add_parser("queries", help="list the queries")
    queries.add_argument("--json", action="store_true", help="print JSON")
    queries.add_argument("--sql", metavar="NAME", help="print the SQL file of a query")
    queries.set_defaults(run=_queries)

    _add_compact(commands)

    advice = commands.add_parser(
        "advise", help="limits, requests, huge pages and cold memory by service, with evidence"
    )
    _add_window(advice)
    advice.add_argument(
        "--max-refault-ppm",
        metavar="N",
        type=int,
        default=2000,
        help="refaults in a minute, parts per million of the working set, that cold memory may cost (%(default)s)",
    )
    advice.add_argument("--json", action="store_true", help="print JSON")
    advice.set_defaults(run=_advise)

    state = commands.add_parser(
        "status",
        help="what the store holds: objects, bytes, days, manifests, hosts",
        description="Lists objects and manifests, and reads no rows but those of the query `coverage`.",
    )
    _add_store(state)
    state.add_argument("--json", action="store_true", help="print JSON")
    state.set_defaults(run=_status)
    return parser


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        default=os.environ.get(STORE_VARIABLE, ""),
        help=f"a folder, or a URL such as s3://bucket/prefix (${STORE_VARIABLE})",
    )
    parser.add_argument(
        "--storage-option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the file system, as fsspec has them; VALUE may be JSON",
    )
    parser.add_argument("--memory", default=DEFAULT_MEMORY, help="memory of DuckDB (%(default)s)")
    parser.add_argument("--threads", type=int, default=DEFAULT_THREADS, help="threads of DuckDB (%(default)s)")


def _add_window(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument("--service", metavar="GLOB", help="only services that match; * is any text, ? one character")
    parser.add_argument(
        "--since", metavar="TIME", help="7d, 24h, or a time in UTC such as 2026-11-24T10:00 (each query has its own)"
    )
    parser.add_argument("--until", metavar="TIME", help="the same (the end of the newest interval in the store)")
    parser.add_argument("--skip-damaged", action="store_true", help="skip objects that cannot be read, with a warning")


def _add_compact(commands: Any) -> None:
    parser = commands.add_parser(
        "compact", help="join the objects of each table and day", description=compact.__doc__.split("\n")[0]
    )
    _add_store(parser)
    parser.set_defaults(memory="1GiB")
    parser.add_argument(
        "--table", action="append", choices=list(contract.TABLES), help="only this table; may be repeated"
    )
    parser.add_argument("--days", type=int, default=14, help="how many days back are compacted (%(default)s)")
    parser.add_argument("--keep-days", type=int, help="remove days that are older than this (keep all)")
    parser.add_argument(
        "--grace",
        metavar="TIME",
        default="1h",
        help="how long replaced objects stay for queries that have begun (%(default)s)",
    )
    parser.add_argument(
        "--bucket-mib", type=int, default=compact.BUCKET_BYTES >> 20, help="size of a bucket (%(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be merged, and change nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_compact)


def pairs(given: list[str], option: str) -> dict[str, str]:
    """Names and values of an option that may be repeated."""
    for pair in given:
        if "=" not in pair:
            raise UsageError(f"{option} {pair!r}: write NAME=VALUE")
    return dict(pair.split("=", 1) for pair in given)


def _at_least(least: int, option: str, value: int | None) -> None:
    if value is not None and value < least:
        raise UsageError(f"{option} {value}: give {least} or more")


def _fleet(args: argparse.Namespace) -> Fleet:
    _at_least(1, "--threads", args.threads)
    options: dict[str, Any] = {}
    for name, text in pairs(args.storage_option, "--storage-option").items():
        try:
            options[name] = json.loads(text)
        except ValueError:
            options[name] = text
    settings = Settings(args.memory, args.threads, getattr(args, "skip_damaged", False))
    return Fleet(open_store(args.store, options), settings)


@contextlib.contextmanager
def _progress(text: Callable[[], str]) -> Iterator[None]:
    """Shows a line on stderr if that is a terminal and it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()

    def show() -> None:
        wait_s = PROGRESS_AFTER_S
        while not ended.wait(wait_s):
            wait_s = 0.5
            print(f"\r\x1b[K{text()}", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _query(args: argparse.Namespace) -> int:
    query = sqlfile.query(args.name)
    fleet = _fleet(args)
    params: dict[str, object] = dict(pairs(args.set, "--set"))
    with _progress(lambda: f"{query.name}: reading {fleet.store.url}"):
        answer = fleet.ask(query, service=args.service, since=args.since, until=args.until, params=params)
    if args.parquet is not None:
        _write_parquet(answer, args.parquet)
    if args.chart is not None:
        _chart(query, answer, args.chart, args.rows)
    if args.json:
        print(
            json.dumps(
                {"query": query.name, "window": [answer.window.since_s, answer.window.until_s], "rows": answer.rows()}
            )
        )
    elif args.parquet is None and args.chart is None:
        _print_table(query, answer, args.rows)
    return 0


def _first(answer: Answer, rows: int) -> list[dict[str, Any]]:
    return answer.rows() if rows <= 0 else list(answer.arrow().slice(0, rows).to_pylist())


def _print_table(query: sqlfile.Query, answer: Answer, rows: int) -> None:
    count = answer.arrow().num_rows
    print(f"{query.about}; {answer.window}, {answer.objects} objects\n")
    print(render.table_text(answer.arrow().column_names, _first(answer, rows)), end="")
    if 0 < rows < count:
        print(f"\n{count - rows} more rows: -n 0 prints all")


def _write_parquet(answer: Answer, path: Path) -> None:
    import pyarrow.parquet as pq

    try:
        pq.write_table(answer.arrow(), path)
    except OSError as error:
        raise FleetError(f"write {path}: {error}") from error


def _chart(query: sqlfile.Query, answer: Answer, target: str, rows: int) -> None:
    # Lines are drawn whole.
    columns = answer.arrow().column_names
    shown = _first(answer, 0 if render.spec_of(query.name, columns).is_line else rows)
    if target == "-":
        print(f"{query.about}; {answer.window}\n")
        print(render.chart_text(query.name, columns, shown), end="")
        return
    path = Path(target)
    kind = path.suffix.removeprefix(".")
    if kind not in ("png", "svg"):
        raise UsageError(f"--chart {target}: give a file that ends in .png or .svg, or - for the terminal")
    try:
        path.write_bytes(render.chart_image(query.name, query.about, columns, shown, kind))
    except OSError as error:
        raise FleetError(f"write {path}: {error}") from error


def _queries(args: argparse.Namespace) -> int:
    if args.sql is not None:
        print(sqlfile.query(args.sql).text, end="")
        return 0
    found = sqlfile.queries().values()
    if args.json:
        print(
            json.dumps(
                [
                    {
                        "name": query.name,
                        "about": query.about,
                        "window": query.window,
                        "tables": query.tables,
                        "params": [vars(param) for param in query.params],
                    }
                    for query in found
                ]
            )
        )
        return 0
    for query in found:
        print(f"{query.name:<10} {query.about} ({query.window})")
        for param in query.params:
            print(f"{'':<10}   --set {param.name}={param.default}: {param.about}")
    return 0


def _compact(args: argparse.Namespace) -> int:
    for name, least in (("days", 0), ("keep_days", 0), ("bucket_mib", 1)):
        _at_least(least, f"--{name.replace('_', '-')}", getattr(args, name))
    fleet = _fleet(args)
    options = compact.Options(
        grace_s=duration_s(args.grace),
        keep_days=args.keep_days,
        bucket_bytes=args.bucket_mib << 20,
        memory=args.memory,
        threads=args.threads,
        dry_run=args.dry_run,
        warn=lambda line: print(line, file=sys.stderr),
    )
    compactor = compact.Compactor(fleet.store, options)
    reports: list[compact.Report] = []
    with _progress(lambda: f"compact: {len(reports)} tables and days"):
        for report in compactor.run(args.table or list(contract.TABLES), args.days):
            reports.append(report)
    changed = [report for report in reports if report.inputs or report.removed or report.note]
    if args.json:
        found = {"reports": [report.to_dict() for report in changed]}
        print(json.dumps(found | {"damaged": compactor.damaged, "failed": compactor.failed}))
    elif changed:
        columns = ["table", "date", "inputs", "outputs", "rows", "bytes_before", "bytes_after", "removed", "note"]
        rows = [
            {f"{name}_bytes" if name.startswith("bytes_") else name: value for name, value in report.to_dict().items()}
            for report in changed
        ]
        print(
            render.table_text([f"{name}_bytes" if name.startswith("bytes_") else name for name in columns], rows),
            end="",
        )
    else:
        print("nothing to compact")
    return 1 if compactor.damaged or compactor.failed else 0


def _advise(args: argparse.Namespace) -> int:
    fleet = _fleet(args)
    with _progress(lambda: f"advise: reading {fleet.store.url}"):
        facts = advise.gather(
            fleet, service=args.service, since=args.since, until=args.until, max_refault_ppm=args.max_refault_ppm
        )
    found = [advice for each in facts for advice in advise.advise(each)]
    if args.json:
        print(json.dumps([advice.to_dict() for advice in found]))
        return 0
    for each in facts:
        print(render.printable(each.service))
        mine = [advice for advice in found if advice.service == each.service]
        for advice in mine:
            print(
                f"  {advice.text}" + ("" if advice.confidence == "withheld" else f"  [confidence {advice.confidence}]")
            )
            for line in advice.evidence:
                print(f"      {line}")
        if not mine:
            print("  nothing to change")
    if not facts:
        print("no service has rows in this window")
    return 0


def _status(args: argparse.Namespace) -> int:
    fleet = _fleet(args)
    with _progress(lambda: f"status: listing {fleet.store.url}"):
        found = status.status(fleet)
    print(json.dumps(found.to_dict()) if args.json else status.text(found), end="\n" if args.json else "")
    return 0
