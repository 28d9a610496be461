"""Answers the queries of `isotherm-fleet` on Spark, from the same SQL files.

    spark-submit fleet/spark/query.py NAME --store URL [--service GLOB] [--since 7d] [--until TIME] [-o DIR]

Executors need nothing but Spark. See `engine`.
"""

from __future__ import annotations

import argparse
import sys

from engine import ask, session

from isotherm_fleet import sqlfile
from isotherm_fleet.cli import pairs
from isotherm_fleet.errors import FleetError, UsageError
from isotherm_fleet.fleet import Fleet
from isotherm_fleet.store import open_store


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="query.py", description="Answers a query of isotherm-fleet on Spark.")
    parser.add_argument("name", help="one of: " + ", ".join(sqlfile.queries()))
    parser.add_argument("--store", required=True, metavar="URL", help="the store: a folder, or a URL that fsspec knows")
    parser.add_argument("--service", metavar="GLOB", help="only services that match")
    parser.add_argument("--since", metavar="TIME", help="a duration such as 7d, or a time in UTC (the query's window)")
    parser.add_argument("--until", metavar="TIME", help="a time in UTC (the end of the newest interval)")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the query")
    parser.add_argument("-o", "--output", metavar="DIR", help="write Parquet there, in place of a table on stdout")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    args = _arguments(argv)
    try:
        query = sqlfile.query(args.name)
        fleet = Fleet(open_store(args.store))
        params: dict[str, object] = dict(pairs(args.set, "--set"))
        window = fleet.window(args.since, args.until, query.default_window(params))
        spark = session(f"isotherm-fleet {query.name}")
        answer = ask(spark, fleet, query, window, args.service, params)
        if args.output:
            answer.coalesce(1).write.mode("errorifexists").parquet(args.output)
        else:
            answer.show(200, truncate=False)
        spark.stop()
    except UsageError as error:
        print(f"query.py: {error}", file=sys.stderr)
        return 2
    except FleetError as error:
        print(f"query.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
