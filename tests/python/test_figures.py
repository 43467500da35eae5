"""tools/figures.py draws the documents' figures from the baselines, and tells of missed goals."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import figures
import goals
import pytest
from picture import Bar, picture


def row(**values: object) -> dict[str, object]:
    plain = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0}
    return {**plain, "rival_name": "r", "ratio": 2.0, "spread": 0.1, "limit": None, **values}


def test_every_table_and_the_picture_agree_with_the_baselines() -> None:
    for file, text in figures.drawn_files().items():
        assert file.read_text() == text, f"{file.name}: run tools/figures.py"


def test_every_table_that_can_be_drawn_is_in_the_documents() -> None:
    page, readme, *reports = figures.PAGES
    names = [
        match["name"]
        for document in (page, *reports)
        for match in figures.BLOCK.finditer(document.read_text())
    ]
    assert sorted(names) == sorted(figures.TABLES)
    assert [match["name"] for match in figures.BLOCK.finditer(readme.read_text())] == ["main"]


def test_the_picture_is_well_formed_and_shows_the_demo_and_the_baseline() -> None:
    drawn = figures.draw_picture()
    said = " ".join(text for text in ElementTree.fromstring(drawn).itertext())
    assert "$ ./dev demo" in said and "says 6 (100%)" in said
    best = figures.main_row("server", "mlp, 16 clients, inline", "throughput", figures.BASELINES)
    assert f"{best['ours']:,.0f}" in said and best["rival_name"] in said


def test_long_lines_and_long_names_stay_within_the_picture() -> None:
    """Names of bars began left of it, and lines of the demo ran out of the terminal."""
    names = ["Lumen, inline, onnxruntime", "hyper"]
    bars = [Bar(name, 2.0, True) for name in names]
    drawn = ElementTree.fromstring(picture("$ x\n" + 300 * "y" + "\n", "title", bars, "foot"))
    texts = {"".join(one.itertext()): one for one in drawn.iter() if one.tag.endswith("text")}
    for name in names:
        assert float(texts[name].attrib["x"]) >= 7 * len(name)
    (line,) = [text for text in texts if text.startswith("yy")]
    assert line == 104 * "y" + "…"


def test_the_main_figures_say_where_we_lose() -> None:
    drawn = figures.main_table(figures.BASELINES)
    lines = re.findall(r"^\| .*`\./dev bench \w+` \|$", drawn, re.MULTILINE)
    assert len(lines) == len(figures.MAIN)
    page = figures.render(figures.PAGES[0].read_text())
    misses = re.findall(r"^\* .*; wanted: .*$", page, re.MULTILINE)
    assert f"{len(misses) or 'none'} miss it" in drawn
    (by_bench,) = re.findall(r"miss it: (.*?)\. \[", drawn)
    counts = dict(part.rsplit(" ", 1) for part in by_bench.split(", "))
    assert sum(map(int, counts.values())) == len(misses)


def test_a_changed_baseline_changes_the_table(tmp_path: Path) -> None:
    text = "before\n<!-- figures: server -->\nold\n<!-- end -->\nafter\n"
    machine = {"cpu": "Abacus, wood", "cpus": 2, "kernel": "6.1", "day": "2026-01-02"}
    measurement = {"kind": None, "machine": machine, "commit": "abc", "sources": None}
    document = {"measurements": [{**measurement, "rows": [row(ours=1234.5)]}]}
    (tmp_path / "server.json").write_text(json.dumps(document))
    drawn = figures.render(text, tmp_path)
    assert "| 1,234 |" in drawn and "old" not in drawn
    assert "Measured on: Abacus, wood, 2 CPUs, Linux 6.1, 2026-01-02, commit abc." in drawn
    assert drawn.startswith("before\n") and drawn.endswith("<!-- end -->\nafter\n")
    assert figures.render(drawn, tmp_path) == drawn


def test_a_baseline_that_is_missing_is_said(tmp_path: Path) -> None:
    text = "<!-- figures: server -->\n<!-- end -->\n"
    assert "No figures are kept yet" in figures.render(text, tmp_path)


def test_a_table_that_nobody_can_draw_is_refused() -> None:
    with pytest.raises(SystemExit, match="'sevrer'; wanted one of: server"):
        figures.render("<!-- figures: sevrer -->\n<!-- end -->\n")


@pytest.mark.parametrize(
    ("ratio", "spread", "said"),
    [(1.3, 0.2, "ahead"), (1.1, 0.2, "tie"), (0.9, 0.2, "tie"), (0.7, 0.2, "**behind**")],
)
def test_a_ratio_closer_to_one_than_the_spread_is_a_tie(
    ratio: float, spread: float, said: str
) -> None:
    assert figures.verdict(row(ratio=ratio, spread=spread)) == said


def test_a_goal_that_is_missed_is_named_and_one_without_a_row_is_an_error() -> None:
    rows = [
        row(row="arena 16 B", ours=0.5),
        row(row="dense", metric="record", ours=5.0, limit=4.0),
        row(row="lane", ours=0.6, ratio=0.95),
    ]
    said = figures.unreached("memory", rows)
    assert "* dense: 5.00 ns; wanted: within 10 %" in said
    assert "arena" not in said and "lane" not in said
    rows[1]["ours"] = 4.4
    assert "Every goal" in figures.unreached("memory", rows)
    with pytest.raises(SystemExit, match="no row for the goal 'lane'"):
        figures.check_goals_have_rows("memory", rows[:2])
    figures.check_goals_have_rows("memory", rows)


def test_a_goal_of_rows_that_came_later_counts_once_they_are_there() -> None:
    old = [row(row="squeezenet, 1 client", metric="throughput")]
    assert figures.unreached("server", old) == ""
    split = "squeezenet, 4 clients, split"
    good = row(row=split, metric="throughput", unit="requests/s", ours=332.0, limit=349.0)
    assert "Every goal" in figures.unreached("server", [*old, good])
    bad = {**good, "ours": 331.0}
    assert f"* {split}: 331 requests/s" in figures.unreached("server", [*old, bad])


def test_rows_with_several_metrics_become_one_line(tmp_path: Path) -> None:
    name = "mpmc, 1 client, spinning"
    rows = [
        row(row=name, metric="queue residency, mean", unit="µs", ours=4.5),
        row(row=name, metric="queue residency, p99", unit="µs", ours=20.5),
    ]
    drawn = figures.TABLES["residency"]({"rows": rows})
    assert f"| {name} | 4.50 | 20.5 |" in drawn
    assert f"* {name}: queue residency, p99 20.5 µs; wanted: 20 µs." in drawn
    assert "mean 4.50" not in drawn


def goal_file(folder: Path, text: str) -> Path:
    file = folder / "goals.toml"
    file.write_text(text)
    return file


def test_each_rule_of_a_goal_holds_and_fails(tmp_path: Path) -> None:
    good = row(ours=9.0, limit=10.0, rival=8.5, ratio=1.0, spread=0.1)
    cases = {
        "at_most": (9, 8),
        "at_least": (9, 9.1),
        "of_limit_at_least": (0.9, 0.91),
        "of_limit_at_most": (0.9, 0.89),
        "over_limit_at_most": (-1, -2),
        "over_rival_at_most": (0.5, 0.4),
        "under_rival_at_most": (-0.5, -0.6),
        "ratio_at_least": (1, 1.01),
        "of_first_at_least": (1, 1.1),
    }
    assert {*cases, "level"} == set(goals.RULES)
    for rule, bounds in cases.items():
        text = "".join(f'[[a]]\nrows = ""\nwanted = "w"\n{rule} = {bound}\n' for bound in bounds)
        held = [one.is_reached(good, [good]) for one in goals.goals("a", goal_file(tmp_path, text))]
        assert held == [True, False], rule
        goals.goals.cache_clear()


def test_a_goal_without_a_rule_is_an_error(tmp_path: Path) -> None:
    file = goal_file(tmp_path, '[[a]]\nrows = ""\nwanted = "w"\nat_mots = 1\n')
    with pytest.raises(SystemExit, match="wanted one rule of at_most"):
        goals.goals("a", file)


def test_overload_is_held_to_its_four_goals() -> None:
    def rows(refused: float, rate: float, p99: float, budget_p99: float) -> dict[str, object]:
        few, many, budget = "mpmc, 4 clients", "mpmc, 16 clients", "mpmc, 4 clients, latency budget"
        return {
            "rows": [
                row(row=few, metric="refused", ours=0.0),
                row(row=few, metric="throughput", ours=300.0, limit=500.0),
                row(row=few, metric="p99 latency", ours=9000.0, limit=8000.0),
                row(row=many, metric="refused", ours=refused),
                row(row=many, metric="throughput", ours=rate, limit=500.0),
                row(row=many, metric="p99 latency", ours=p99, limit=32000.0),
                row(row=budget, metric="refused", ours=0.5),
                row(row=budget, metric="throughput", ours=200.0, limit=500.0),
                row(row=budget, metric="p99 latency", ours=budget_p99, limit=24_000.0),
            ]
        }

    draw = figures.TABLES["overload"]
    good = draw(rows(0.0, 292.0, 41_000.0, 24_000.0))
    assert "| mpmc, 4 clients | 300 (limit 500) | 9,000 (limit 8,000) | 0.00 |" in good
    assert "Every goal" in good
    bad = draw(rows(0.1, 290.0, 42_000.0, 24_001.0))
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
    drawn = figures.matrix(json.loads(shown.stdout))
    assert drawn.startswith("Model `identity`, 4 requests over 2 connections")
    assert len(re.findall(r"^\| (mpmc|inline) \| (lumen_arena|standard) \| \d", drawn, re.M)) == 4
