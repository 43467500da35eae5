"""The page of a report: docs/reports/DATE-CPU.md with its charts beside it.

Tables are those of the documents, over this run's results instead of the kept figures. A bench
that failed or was not measured has a row that says so. Threads: one. Errors: OSError where the page
can't be written; a table that can't be drawn says why in its place.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import charts
from bench.report.documents import draw_table
from bench.report.run import OK, Result, minutes
from bench.runner import declare
from bench.runner.declare import Bench
from bench.runner.goals import count_of_rows
from bench.runner.rows import by_kind
from bench.runner.tables import compared, misses, table

# Tables of a part of a document, and where the document has it; a quick run may have none of it.
PART_KEYS = {"story": "story", "counts": "counted"}
ALTS = {
    "latency": "Latency percentiles of the small MLP by server, at 1 and at 16 clients, in µs",
    "throughput": "Requests a second to the small MLP by number of clients and server",
    "queues": "Millions of messages a second through queues, on near and on far cores",
}

Measurement = dict[str, Any]


@dataclass(frozen=True)
class About:
    """The text above the figures."""

    slug: str
    commit: str
    facts: dict[str, str]
    is_quick: bool

    def stem(self, day: str) -> str:
        return f"{day}-{self.slug}{'-quick' if self.is_quick else ''}"


def together(results: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """The documents by baseline: the rows of its parts follow each other."""
    found: dict[str, dict[str, Any]] = {}
    for result in results:
        if result.document is None:
            continue
        document = found.setdefault(result.job.bench.name, {"rows": []})
        more = {key: value for key, value in result.document.items() if key != "rows"}
        document |= {key: value for key, value in more.items() if value or key not in document}
        document["rows"] = document["rows"] + result.document["rows"]
    return found


def draw_tables(bench: Bench, measurements: Sequence[Measurement]) -> str:
    said = []
    for part in bench.tables:
        for measurement in measurements[: 1 if part else None]:
            if part in PART_KEYS and not measurement.get(PART_KEYS[part]):
                continue
            kind = f"{measurement['kind'].capitalize()} cores:\n\n" if measurement["kind"] else ""
            try:
                said.append(kind + draw_table(bench, part, measurement))
            except (KeyError, ValueError, TypeError) as error:
                said.append(f"The table `{part or bench.name}` can't be drawn: {error!r}\n")
    if not bench.tables:
        said = [compared(measurement) for measurement in measurements]
    return "\n".join(said)


def missed(documents: dict[str, dict[str, Any]]) -> str:
    """As the README has it, of the measurements made here."""
    aimed, said = 0, []
    for bench in map(declare.find, documents):
        for measurement in by_kind(documents[bench.name]) if bench.has_metrics else []:
            aimed += count_of_rows(bench.goals, measurement["rows"])
            said += misses(bench.goals, measurement["rows"])
    head = f"Of {aimed} rows that have a goal, {len(said) or 'none'} miss it"
    return head + (":\n\n" + "\n".join(said) + "\n" if said else ".\n")


def machine_table(facts: dict[str, str]) -> str:
    return table(["", ""], [[name, said] for name, said in facts.items()], 2)


def runs_table(results: Sequence[Result]) -> str:
    heads = ["bench", "command", "", "began (UTC)", "took", "steal", "CPUs of others", "load"]
    lines = []
    for result in results:
        load = result.load or {}
        shown = ["–"] * 5
        if load:
            shown = [
                result.began[11:19],
                minutes(result.seconds / 60),
                f"{load['steal']:.1%}",
                f"{load['others_cpus']:.2f}",
                f"{load['load_average']:.1f}",
            ]
        status = result.status if result.status == OK else f"**{result.status}**"
        lines.append([result.job.name, f"`{short(result.command)}`", status, *shown])
    return table(heads, lines, 3)


def short(command: str) -> str:
    """Without the interpreter, which is this machine's own."""
    _, _, words = command.partition(" -m ")
    return words.replace(" --json", "") or "–"


def pictures(documents: dict[str, dict[str, Any]]) -> dict[str, str | None]:
    rows = documents.get("clients", {"rows": []})["rows"]
    queue = by_kind(documents.get("queue", {"rows": []}))
    return {
        "latency": charts.latency(rows) if rows else None,
        "throughput": charts.throughput(rows) if rows else None,
        "queues": charts.queues(queue),
    }


def opening(about: About, results: Sequence[Result], day: str) -> str:
    measured = [result for result in results if result.status == OK]
    took = minutes(sum(result.seconds for result in results) / 60)
    kind = (
        "quick report: few and short rounds, so look at the spread" if about.is_quick else "report"
    )
    return (
        f"# Figures of {day}, {about.facts['CPU']}\n\n"
        f"A {kind}. Drawn by `./dev report{' --quick' if about.is_quick else ''}` at commit "
        f"{about.commit}: {len(measured)} of {len(results)} benches, {took} of measuring, one "
        "after the other. Within a bench ours and the rivals take turns; a spread is (largest - "
        "smallest) / median over the rounds, and a ratio closer to 1 than the spread is a tie. How "
        "everything is measured: [benchmarking.md](../benchmarking.md).\n"
    )


def failures(results: Sequence[Result]) -> str:
    said = []
    for result in results:
        if result.error:
            said.append(f"### {result.job.name}\n\n```\n{result.error.replace('```', '')}\n```\n")
    return "## What failed\n\n" + "\n".join(said) + "\n" if said else ""


def write(about: About, results: Sequence[Result], folder: Path, day: str = "") -> Path:
    """The page; its pictures stand beside it. The day is that of the last bench."""
    began = [result.began[:10] for result in results if result.began]
    day = day or max(began, default=datetime.datetime.now(datetime.UTC).date().isoformat())
    documents = together(results)
    stem = about.stem(day)
    folder.mkdir(parents=True, exist_ok=True)
    parts = [opening(about, results, day), "## Charts\n"]
    for name, drawn in pictures(documents).items():
        if drawn is None:
            parts.append(f"{ALTS[name]}: nothing was measured for it in this run.\n")
            continue
        (folder / f"{stem}-{name}.svg").write_text(drawn)
        parts.append(f"![{ALTS[name]}]({stem}-{name}.svg)\n")
    parts += ["## Goals that are missed\n", missed(documents)]
    parts += ["## The machine\n", machine_table(about.facts)]
    parts += [
        "## Runs, and their disturbances\n",
        "Steal is the share of the CPUs' time that the hypervisor gave to others; the CPUs of "
        "others are those that processes beside the report kept busy.\n",
        runs_table(results),
        failures(results),
    ]
    for bench in map(declare.find, documents):
        parts += [f"## {bench.title}\n", draw_tables(bench, by_kind(documents[bench.name]))]
    page = folder / f"{stem}.md"
    page.write_text("\n".join(part for part in parts if part))
    return page
