"""`make fleet-demo`: a modelled fleet of 200 hosts and 7 days, compacted; six reports, advice, and a page of charts.

The store stays in target/fleet-demo/store for queries of your own. The page is one file,
target/fleet-demo/fleet.html, without references to anything outside of it.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from pathlib import Path

from model import REPORTS, ROOT, fleet_command, model_store, p95_errors, say

FOLDER = ROOT / "target/fleet-demo"
STYLE = (
    "body{font:15px sans-serif;margin:2em auto;max-width:60em;color:#222}"
    "svg{width:100%;height:auto}pre{font-size:12px;overflow:auto}"
)
CHARTED = (*REPORTS, ("trend",), ("outliers",))
AIM = 0.02
"""How far p95 of a service may be from the truth of the model; the demo fails beyond it."""


def page(title: str, sections: list[tuple[str, str]]) -> str:
    """The page: a heading and a picture or a text for each section."""
    parts = [f"<h2>{html.escape(heading)}</h2>\n{body}" for heading, body in sections]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f"{head}<h1>{title}</h1>\n" + "\n".join(parts) + "</html>\n"


def svg(store: Path, report: tuple[str, ...]) -> str:
    """The chart of a report, as an element."""
    target = FOLDER / "chart.svg"
    fleet_command("query", *report, "-n", "25", "--chart", str(target), store=store)
    text = target.read_text()
    target.unlink()
    return text[text.index("<svg") :]


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(description="A modelled fleet, its reports, and a page of charts.")
    parser.add_argument("--hosts", type=int, default=200, help="hosts (%(default)s)")
    parser.add_argument("--days", type=int, default=7, help="days (%(default)s)")
    args = parser.parse_args()
    store = FOLDER / "store"
    say(f"modelling {args.hosts} hosts for {args.days} days into {store}")
    truth = model_store(store, args.hosts, args.days)
    written = truth["written"]
    say(f"{written['objects']} objects, {written['bytes'] / 1e6:.0f} MB; compacting")
    say(fleet_command("compact", "--days", "1000000", "--grace", "0s", store=store).output.decode())
    for report in REPORTS:
        say(fleet_command("query", *report, "-n", "12", store=store).output.decode())
    advice = fleet_command("advise", store=store).output.decode()
    say(advice)
    rows = json.loads(fleet_command("query", "wss", "--json", store=store).output)["rows"]
    errors = p95_errors(truth, rows)
    worst = max(errors, key=lambda service: errors[service])
    close = sum(error <= AIM for error in errors.values())
    say(f"p95 of the working set: {close} of {len(errors)} services within {AIM:.0%} of the truth of the model")
    say(f"at most {errors[worst]:.2%} off ({worst})")
    title = f"{args.hosts} modelled hosts, {args.days} days"
    sections = [(report[0], svg(store, report)) for report in CHARTED]
    sections.append(("advise", f"<pre>{html.escape(advice)}</pre>"))
    (FOLDER / "fleet.html").write_text(page(title, sections))
    say(f"charts: {FOLDER / 'fleet.html'}")
    if errors[worst] > AIM:
        sys.exit(f"the p95 of {worst} is {errors[worst]:.2%} off, more than {AIM:.0%}")


if __name__ == "__main__":
    main()
