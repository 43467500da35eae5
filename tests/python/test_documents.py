"""The documents' figures are drawn from the kept ones, and tell of missed goals."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.report import documents
from bench.report.picture import Bar, picture
from bench.runner import declare, store

MACHINE = {"cpu": "Abacus, wood", "cpus": 2, "kernel": "6.1", "day": "2026-01-02"}


def row(**values: object) -> dict[str, Any]:
    plain = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0}
    return {**plain, "rival_name": "r", "ratio": 2.0, "spread": 0.1, "limit": None, **values}


def measurement(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = {"kind": None, "machine": MACHINE, "commit": "abc", "sources": None}
    return {**made, **more, "rows": list(rows)}


def write(folder: Path, name: str, *measurements: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(store.as_text(measurements))


def drawn(name: str, *rows: dict[str, Any]) -> str:
    return documents.draw_table(declare.find(name), "", {"rows": list(rows)})


def test_every_table_and_the_picture_agree_with_the_kept_figures() -> None:
    for file in documents.differing(documents.drawn_files()):
        pytest.fail(f"{file.name}: run ./dev report --draw")


def test_every_table_that_can_be_drawn_is_in_the_documents() -> None:
    page, readme, *reports = documents.PAGES
    names = [
        match["name"]
        for document in (page, *reports)
        for match in documents.BLOCK.finditer(document.read_text())
    ]
    assert sorted(names) == sorted(documents.table_names())
    assert [match["name"] for match in documents.BLOCK.finditer(readme.read_text())] == ["main"]


def test_the_picture_is_well_formed_and_shows_the_demo_and_the_figures() -> None:
    made = documents.draw_picture()
    said = " ".join(text for text in ElementTree.fromstring(made).itertext())
    assert "$ ./dev demo" in said and "says 6 (100%)" in said
    best = documents.main_row("server", "mlp, 16 clients, inline", "throughput")
    assert f"{best['ours']:,.0f}" in said and best["rival_name"] in said


def test_long_lines_and_long_names_stay_within_the_picture() -> None:
    """Names of bars began left of it, and lines of the demo ran out of the terminal."""
    names = ["Lumen, inline, onnxruntime", "hyper"]
    bars = [Bar(name, 2.0, True) for name in names]
    made = ElementTree.fromstring(picture("$ x\n" + 300 * "y" + "\n", "title", bars, "foot"))
    texts = {"".join(one.itertext()): one for one in made.iter() if one.tag.endswith("text")}
    for name in names:
        assert float(texts[name].attrib["x"]) >= 7 * len(name)
    (line,) = [text for text in texts if text.startswith("yy")]
    assert line == 104 * "y" + "…"


def test_the_main_figures_say_where_we_lose() -> None:
    main = documents.main_table()
    lines = re.findall(r"^\| .*`\./dev bench \w+` \|$", main, re.MULTILINE)
    assert len(lines) == len(documents.MAIN)
    page = documents.render(documents.PAGES[0].read_text())
    misses = re.findall(r"^\* .*; wanted: .*$", page, re.MULTILINE)
    assert f"{len(misses) or 'none'} miss it" in main
    assert not misses or "miss it: [docs/figures.md](docs/figures.md) names each." in main


def test_other_figures_change_the_table_and_tell_machine_day_commit_and_its_age(
    tmp_path: Path,
) -> None:
    text = "before\n<!-- figures: server -->\nold\n<!-- end -->\nafter\n"
    write(tmp_path, "server", measurement(row(ours=1234.5)))
    made = documents.render(text, tmp_path)
    assert "| 1,234 |" in made and "old" not in made
    assert "Measured on: Abacus, wood, 2 CPUs, Linux 6.1, 2026-01-02, commit abc, of a his" in made
    assert made.startswith("before\n") and made.endswith("<!-- end -->\nafter\n")
    assert documents.render(made, tmp_path) == made


# Was: a figure that was older than its code failed a test, and so kept defects from being mended.
def test_the_age_of_figures_makes_no_document_wrong(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("day, commit abc, 3 commits ago when this was drawn.\n")
    later = page.read_text().replace("3 commits ago", "of a history before this one")
    assert documents.differing({page: later}) == []
    assert documents.differing({page: later.replace("abc", "abd")}) == [page]
    code = {"sources": store.content_hash(declare.find("server"))}
    tables = []
    for more in ({}, code):
        write(tmp_path, "server", measurement(row(), **more))
        tables.append(documents.draw("server", tmp_path))
    assert tables[0] == tables[1]


def test_near_and_far_stand_in_tables_of_their_own(tmp_path: Path) -> None:
    both = [measurement(row(metric="mops", unit="M/s"), kind=kind) for kind in ("far", "near")]
    write(tmp_path, "queue", *both)
    made = documents.draw("queue", tmp_path)
    assert made.count("| best rival |") == 2
    assert made.index("far cores") < made.index("near cores")


def test_figures_that_are_missing_are_said(tmp_path: Path) -> None:
    text = "<!-- figures: server -->\n<!-- end -->\n"
    assert "No figures are kept yet" in documents.render(text, tmp_path)


def test_a_table_that_nobody_can_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="'sevrer'; wanted one of: bus"):
        documents.render("<!-- figures: sevrer -->\n<!-- end -->\n")


def test_a_goal_of_rows_that_came_later_counts_once_they_are_there() -> None:
    old = row(row="squeezenet, 1 client", metric="throughput")
    assert "goal" not in drawn("server", old).lower()
    split = "squeezenet, 4 clients, split"
    good = row(row=split, metric="throughput", unit="requests/s", ours=332.0, limit=349.0)
    assert "Every goal" in drawn("server", old, good)
    assert f"* {split}: 331 requests/s" in drawn("server", old, {**good, "ours": 331.0})


def test_rows_with_several_metrics_become_one_line() -> None:
    name = "mpmc, 1 client, spinning"
    made = drawn(
        "residency",
        row(row=name, metric="queue residency, mean", unit="µs", ours=4.5),
        row(row=name, metric="queue residency, p99", unit="µs", ours=20.5),
    )
    assert f"| {name} | 4.50 | 20.5 |" in made
    assert f"* {name}: queue residency, p99 20.5 µs; wanted: 20 µs." in made
    assert "mean 4.50" not in made


def test_overload_is_held_to_its_four_goals() -> None:
    def table(refused: float, rate: float, p99: float, budget_p99: float) -> str:
        few, many, budget = "mpmc, 4 clients", "mpmc, 16 clients", "mpmc, 4 clients, latency budget"
        return drawn(
            "overload",
            row(row=few, metric="refused", ours=0.0),
            row(row=few, metric="throughput", unit="requests/s", ours=300.0, limit=500.0),
            row(row=few, metric="p99 latency", ours=9000.0, limit=8000.0),
            row(row=many, metric="refused", ours=refused),
            row(row=many, metric="throughput", unit="requests/s", ours=rate, limit=500.0),
            row(row=many, metric="p99 latency", ours=p99, limit=32000.0),
            row(row=budget, metric="refused", ours=0.5),
            row(row=budget, metric="throughput", unit="requests/s", ours=200.0, limit=500.0),
            row(row=budget, metric="p99 latency", ours=budget_p99, limit=24_000.0, is_bound=True),
        )

    good = table(0.0, 292.0, 41_000.0, 24_000.0)
    assert "| mpmc, 4 clients | 300 (limit 500) | 9,000 (limit 8,000) | 0.00 |" in good
    assert "Every goal" in good
    bad = table(0.1, 290.0, 42_000.0, 24_001.0)
    said = re.findall(r"^\* (.*); wanted: (.*)\.$", bad, re.MULTILINE)
    assert [wanted for _, wanted in said] == [
        "none",
        "97 % of that with 4 clients",
        "1.3 times the limit",
        "within the budget, the limit",
    ]
    assert all("16 clients" in got or "budget" in got for got, _ in said)


def test_the_matrix_is_drawn_from_the_output_of_lumen_matrix(
    lumen_binary: Path, models_path: Path, tmp_path: Path
) -> None:
    words = [lumen_binary, "matrix", "--model", "identity", "--model-repository", models_path]
    words += ["--requests", "4", "--clients", "2", "--queue-types", "mpmc,inline"]
    words += ["--out", tmp_path, "--json"]
    shown = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=300, check=True
    )
    made = declare.find("matrix_mlp").tables[""](json.loads(shown.stdout))
    assert made.startswith("Model `identity`, 4 requests over 2 connections")
    assert len(re.findall(r"^\| (mpmc|inline) \| (lumen_arena|standard) \| \d", made, re.M)) == 4
