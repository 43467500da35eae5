"""README.md: its tables are those of the baselines, its commands work, its links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import readme_figures
from lumen_engine import Server

StartServer = Callable[..., Server]


@pytest.fixture(scope="module")
def readme(project_root: Path) -> str:
    return (project_root / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def row(**values: object) -> dict[str, object]:
    plain = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0}
    return {**plain, "rival_name": "r", "ratio": 2.0, "spread": 0.1, "limit": None, **values}


def test_every_table_says_what_its_baseline_says(readme: str) -> None:
    assert readme_figures.render(readme) == readme, "run tools/readme_figures.py"


def test_every_table_that_can_be_drawn_is_in_the_readme(readme: str) -> None:
    names = [match["name"] for match in readme_figures.BLOCK.finditer(readme)]
    assert sorted(names) == sorted(readme_figures.TABLES)


def test_a_changed_baseline_changes_the_table(tmp_path: Path) -> None:
    text = "before\n<!-- figures: server -->\nold\n<!-- end -->\nafter\n"
    machine = {"cpu": "Abacus, wood", "cpus": 2, "kernel": "6.1", "day": "2026-01-02"}
    measurement = {"kind": None, "machine": machine, "commit": "abc", "sources": None}
    document = {"measurements": [{**measurement, "rows": [row(ours=1234.5)]}]}
    (tmp_path / "server.json").write_text(json.dumps(document))
    drawn = readme_figures.render(text, tmp_path)
    assert "| 1,234 |" in drawn and "old" not in drawn
    assert "Measured on: Abacus, wood, 2 CPUs, Linux 6.1, 2026-01-02, commit abc." in drawn
    assert drawn.startswith("before\n") and drawn.endswith("<!-- end -->\nafter\n")
    assert readme_figures.render(drawn, tmp_path) == drawn


def test_a_baseline_that_is_missing_is_said(tmp_path: Path) -> None:
    text = "<!-- figures: server -->\n<!-- end -->\n"
    assert "No figures are kept yet" in readme_figures.render(text, tmp_path)


def test_a_table_that_nobody_can_draw_is_refused() -> None:
    with pytest.raises(SystemExit, match="'sevrer'; wanted one of: server"):
        readme_figures.render("<!-- figures: sevrer -->\n<!-- end -->\n")


@pytest.mark.parametrize(
    ("ratio", "spread", "said"),
    [(1.3, 0.2, "ahead"), (1.1, 0.2, "tie"), (0.9, 0.2, "tie"), (0.7, 0.2, "**behind**")],
)
def test_a_ratio_closer_to_one_than_the_spread_is_a_tie(
    ratio: float, spread: float, said: str
) -> None:
    assert readme_figures.verdict(row(ratio=ratio, spread=spread)) == said


def test_a_goal_that_is_missed_is_named_and_one_without_a_row_is_an_error() -> None:
    rows = [
        row(row="arena 16 B", ours=0.5),
        row(row="dense", metric="record", ours=5.0, limit=4.0),
        row(row="lane", ours=0.6, ratio=0.95),
    ]
    said = readme_figures.unreached("memory", rows)
    assert "* dense: 5.00 ns; wanted: within 10 %" in said
    assert "arena" not in said and "lane" not in said
    rows[1]["ours"] = 4.4
    assert "Every goal" in readme_figures.unreached("memory", rows)
    with pytest.raises(SystemExit, match="no row for the goal 'lane'"):
        readme_figures.unreached("memory", rows[:2])


def test_a_goal_of_rows_that_came_later_counts_once_they_are_there() -> None:
    old = [row(row="squeezenet, 1 client", metric="throughput")]
    assert readme_figures.unreached("server", old) == ""
    split = "squeezenet, 4 clients, split"
    good = row(row=split, metric="throughput", unit="requests/s", ours=332.0, limit=349.0)
    assert "Every goal" in readme_figures.unreached("server", [*old, good])
    bad = {**good, "ours": 331.0}
    assert f"* {split}: 331 requests/s" in readme_figures.unreached("server", [*old, bad])


def test_rows_with_several_metrics_become_one_line(tmp_path: Path) -> None:
    name = "mpmc, 1 client, spinning"
    rows = [
        row(row=name, metric="queue residency, mean", unit="µs", ours=4.5),
        row(row=name, metric="queue residency, p99", unit="µs", ours=20.5),
    ]
    drawn = readme_figures.TABLES["residency"]({"rows": rows})
    assert f"| {name} | 4.50 | 20.5 |" in drawn
    assert f"* {name}: queue residency, p99 20.5 µs; wanted: 20 µs." in drawn
    assert "mean 4.50" not in drawn


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

    draw = readme_figures.TABLES["overload"]
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


def test_the_matrix_is_drawn_from_what_lumen_matrix_prints(
    lumen_binary: Path, models_path: Path, tmp_path: Path
) -> None:
    words = [lumen_binary, "matrix", "--model", "identity", "--model-repository", models_path]
    words += ["--requests", "4", "--clients", "2", "--queue-types", "mpmc,inline"]
    words += ["--out", tmp_path, "--json"]
    shown = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=300, check=True
    )
    drawn = readme_figures.matrix(json.loads(shown.stdout))
    assert drawn.startswith("Model `identity`, 4 requests over 2 connections")
    assert len(re.findall(r"^\| (mpmc|inline) \| (lumen_arena|standard) \| \d", drawn, re.M)) == 4


def test_the_config_json_is_taken_as_it_stands(
    readme: str,
    server: StartServer,
    models_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (config,) = blocks(readme, "json")
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "config.json").write_text(config)
    monkeypatch.chdir(folder)  # relative paths of the file are taken from there
    started = server(models_path, "--config", "config.json")
    path = tmp_path / json.loads(config)["engine"]["telemetry_csv_path"].removeprefix("../")
    assert "engine mpmc x lumen_arena" in started.output and ": 8 workers" in started.output
    assert f"csv {path}\n" in started.output
    started.stop()
    header = path.read_text().splitlines()[0]
    assert header in readme


def test_the_commands_work_against_a_server_that_listens_as_they_assume(
    readme: str, server: StartServer, models_path: Path, tmp_path: Path
) -> None:
    commands = [block for block in blocks(readme, "sh") if block.startswith("curl ")]
    assert len(commands) >= 4
    started = server(models_path, unix=tmp_path / "lumen.sock")
    for command in commands:
        done = subprocess.run(
            ["bash", "-euc", command.replace("127.0.0.1:8000", started.url)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and done.stdout, f"{command}\n{done.stdout}{done.stderr}"
        assert '"error"' not in done.stdout, f"{command}\n{done.stdout}"


def test_the_python_client_works(readme: str, server: StartServer, models_path: Path) -> None:
    (program,) = blocks(readme, "python")
    started = server(models_path)
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:8000", started.url)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.startswith("[["), done.stderr


def test_links_lead_somewhere(project_root: Path) -> None:
    def anchors(page: Path) -> set[str]:
        heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}

    broken = []
    pages = [project_root / "README.md", project_root / "CHANGELOG.md"]
    for page in [*pages, *(project_root / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(project_root)}: {link}")
    assert not broken
