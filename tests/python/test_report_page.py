"""The page of `./dev report`: machine, runs, charts, tables, goals that are missed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.report import __main__ as report
from bench.report import charts, machine, page, svg
from bench.report.run import FAILED, MISSING, OK, Job, Result, chosen
from bench.runner import declare, store
from bench.runner.rows import by_kind
from bench.runner.tables import compared

SERVERS = ("lumen inline", "hyper", "fastapi <x>")
FACTS = {"CPU": "Abacus, wood", "kernel": "Linux 6.1", "hypervisor": "none"}


def row(**values: object) -> dict[str, Any]:
    plain = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0, "limit": None}
    plain |= {"rival_name": "r", "ratio": 2.0, "spread": 0.1, "rounds": {"lumen": [1.0, 1.0]}}
    return {**plain, **values}


def client_rows(counts: Sequence[int] = (1, 16)) -> list[dict[str, Any]]:
    found = []
    for clients in counts:
        for at, metric in enumerate(["throughput", *(f"{p} latency" for p in PERCENTILES)]):
            rounds = {
                name: [100.0 * (at + 1) * (s + 1) * clients * k for k in (1.0, 1.2, 1.1)]
                for s, name in enumerate(SERVERS)
            }
            name = f"mlp, {clients} client{'s' * (clients > 1)}, inline"
            found.append(row(row=name, metric=metric, rounds=rounds))
    return found


PERCENTILES = ("p50", "p90", "p99", "p99.9")


def queue_row(kind: str, name: str = "spsc 1:1 8 B", **values: object) -> dict[str, Any]:
    rounds = {"lumen": [600.0, 610.0], "boost": [170.0, 180.0], "mutex": [5.0, 6.0]}
    return row(row=name, metric="mops", cpus=kind, rival_name="boost", rounds=rounds, **values)


def job(name: str) -> Job:
    return next(one for one in [*chosen(False), *chosen(True)] if one.name == name)


def result(name: str, rows: list[dict[str, Any]] | None, status: str = OK, **more: Any) -> Result:
    load = {"seconds": 61.0, "steal": 0.031, "others_cpus": 0.25, "load_average": 1.5}
    document = None if rows is None else {"rows": rows}
    command = f"/venv/bin/python -P -m bench {name} --json --quick"
    return Result(
        job(name),
        status,
        command,
        "2026-01-02T10:11:12+00:00",
        61.0,
        load,
        document=document,
        **more,
    )


def written(folder: Path, results: list[Result], is_quick: bool = True) -> str:
    about = page.About("abacus-2cpu", "abc1234567", FACTS, is_quick)
    file = page.write(about, results, folder)
    assert file.name == f"2026-01-02-abacus-2cpu{'-quick' if is_quick else ''}.md"
    return file.read_text()


def test_the_page_has_machine_commit_commands_load_tables_and_charts(tmp_path: Path) -> None:
    results = [
        result("clients", client_rows()),
        result("queue", [queue_row("near"), queue_row("far", "mpmc 2:2 8 B")]),
    ]
    said = written(tmp_path, results)
    assert "# Figures of 2026-01-02, Abacus, wood" in said
    assert "at commit abc1234567: 2 of 2 benches, 2.0 min of measuring" in said
    assert "| hypervisor | none |" in said
    line = "| queue | `bench queue --quick` | ok | 10:11:12 | 1.0 min | 3.1% | 0.25 | 1.5 |"
    assert line in said
    assert "Near cores:" in said and "Far cores:" in said and "| spsc 1:1 8 B |" in said
    assert "## Throughput and latency by clients" in said and "| 16 | 1,760 (18%) |" in said
    shown = re.findall(r"!\[.+\]\((\S+)\)", said)
    assert [name.split("-")[-1] for name in shown] == [
        "latency.svg",
        "throughput.svg",
        "queues.svg",
    ]
    for name in shown:
        ElementTree.parse(tmp_path / name)


def test_the_tables_are_those_of_the_figures(tmp_path: Path) -> None:
    rows = [row(row="arena 16 B", metric="ns", ours=0.5), row(row="dense", limit=1.0, ours=1.0)]
    said = written(tmp_path, [result("memory", rows)])
    assert compared({"rows": rows}) in said


def test_missed_goals_are_listed_as_in_the_readme(tmp_path: Path) -> None:
    rows = [row(row="arena 16 B", ours=0.9, unit="ns"), row(row="arena 256 B", ours=0.5)]
    said = written(tmp_path, [result("memory", rows)])
    assert "Of 2 rows that have a goal, 1 miss it:" in said
    assert "* arena 16 B: m s 0.900 ns; wanted: 0.6 ns." in said


def test_a_failed_or_missing_bench_is_a_row_that_says_so(tmp_path: Path) -> None:
    results = [
        result("queue", None, FAILED, error="no rival\nexit status 1"),
        result("memory", [row()]),
        Result(job("bus"), MISSING, "python -P -m bench bus"),
    ]
    said = written(tmp_path, results)
    assert re.search(r"^\| queue \| .* \| \*\*failed\*\* \|", said, re.MULTILINE)
    assert "### queue\n\n```\nno rival\nexit status 1\n```" in said
    assert re.search(r"^\| bus \| .* \| \*\*not measured\*\* \|", said, re.MULTILINE)
    assert "1 of 3 benches" in said
    assert "nothing was measured for it in this run" in said


def test_rows_of_a_bench_that_failed_later_are_shown_too(tmp_path: Path) -> None:
    said = written(tmp_path, [result("memory", [row(row="arena 16 B")], FAILED, error="late")])
    assert "| arena 16 B |" in said and "**failed**" in said


def test_parts_of_one_baseline_become_one_table() -> None:
    five, threads = result("cache_five", [row(row="x")]), result("cache_threads", [row(row="y")])
    assert five.document is not None
    five.document["curve"] = {"lumen": [[1, 2, 3]]}
    found = page.together([five, threads])
    assert [one["row"] for one in found["cache"]["rows"]] == ["x", "y"]
    assert found["cache"]["curve"]


def test_a_kind_of_cores_that_was_never_met_is_said() -> None:
    drawn = charts.queues(by_kind({"rows": [queue_row("near")]}))
    assert drawn is not None and "Nothing was measured while the cores were far." in drawn


@pytest.mark.parametrize("draw", [charts.latency, charts.throughput])
def test_a_chart_is_well_formed_names_its_units_and_every_server(draw: Any) -> None:
    drawn = draw(client_rows())
    said = [text for text in ElementTree.fromstring(drawn).itertext() if text.strip()]
    assert "fastapi <x>" in said and "hyper" in said and "lumen inline" in said
    assert any("µs" in text or text == "requests a second" for text in said)
    assert "prefers-color-scheme:dark" in drawn
    assert draw([]) is None


def test_a_chart_stays_within_its_picture() -> None:
    for drawn in (charts.latency(client_rows()), charts.throughput(client_rows((1, 2, 64)))):
        assert drawn is not None
        root = ElementTree.fromstring(drawn)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        places = re.findall(r" (?:cx|x1|x2|x)='(-?[\d.]+)'", drawn)
        assert places and all(0 <= float(x) <= width for x in places)
        heights = re.findall(r" (?:cy|y1|y2|y)='(-?[\d.]+)'", drawn)
        assert heights and all(0 <= float(y) <= height for y in heights)


def test_ticks_are_round_numbers_within_the_axis() -> None:
    assert svg.Axis(0, 210_000, 0, 1).ticks() == [0, 50_000, 100_000, 150_000, 200_000]
    assert svg.Axis(10, 500, 0, 1, True).ticks() == [10, 20, 50, 100, 200, 500]
    assert svg.Axis(1, 1e6, 0, 1, True).ticks() == [10.0**power for power in range(7)]
    assert svg.log_range([12, 480]) == (10, 500)
    assert [svg.number(v) for v in (0.5, 20, 1500, 2e6)] == ["0.5", "20", "1.5k", "2M"]


def tree_of(files: dict[str, str], folder: Path) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return folder


def test_the_machine_is_described_with_its_unknown_parts(tmp_path: Path) -> None:
    cache = "sys/devices/system/cpu/cpu0/cache"
    found = machine.facts(
        tree_of(
            {
                "proc/cpuinfo": "model name\t: Abacus(R) 9000 8-Core Processor\nflags\t\t: avx2",
                "proc/meminfo": "MemTotal:        8388608 kB",
                f"{cache}/index0/level": "1",
                f"{cache}/index0/type": "Data",
                f"{cache}/index0/size": "48K",
                f"{cache}/index0/shared_cpu_list": "0",
                f"{cache}/index2/level": "3",
                f"{cache}/index2/type": "Unified",
                f"{cache}/index2/size": "32768K",
                f"{cache}/index2/shared_cpu_list": "0-1",
            },
            tmp_path,
        )
    )
    assert found["caches"] == "L1d 48 KiB, L3 32 MiB shared by CPUs 0-1"
    assert found["memory"] == "8.0 GiB" and found["hypervisor"] == "none"
    assert found["frequency governor"].startswith("not visible")
    assert found["transparent huge pages"] == "not readable"
    governor = {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}
    assert machine.facts(tree_of(governor, tmp_path))["frequency governor"] == "powersave"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Intel(R) Xeon(R) Processor", "intel-xeon-2cpu"),
        ("AMD EPYC 9B45 128-Core Processor", "amd-epyc-9b45-2cpu"),
        ("Intel(R) Core(TM) i7-8565U CPU @ 1.80GHz", "intel-core-i7-8565u-2cpu"),
    ],
)
def test_a_page_is_named_after_the_cpu(name: str, said: str) -> None:
    assert machine.slug(name, 2) == said


def test_steal_and_the_cpus_of_others_are_those_between_two_looks(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal, in ticks of 10 ms
    stat = "cpu  {busy} 0 0 1000 0 0 0 {steal} 0 0"
    tree_of({"proc/stat": stat.format(busy=100, steal=0), "proc/loadavg": "1.5 1 1"}, tmp_path)
    meter = machine.LoadMeter(tmp_path)
    meter.begin -= 10.0
    ours = meter.own_seconds()
    tree_of({"proc/stat": stat.format(busy=600, steal=500)}, tmp_path)
    meter.ours = ours - 3.0  # of 5 s busy
    found = meter.read()
    assert found.steal == pytest.approx(0.5)
    assert found.others_cpus == pytest.approx(0.2, abs=0.05)
    assert found.load_average == 1.5


@pytest.fixture
def kept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "baselines"
    folder.mkdir()
    monkeypatch.setattr(store, "BASELINES", folder)
    return folder


def test_keep_writes_the_baselines_of_benches_that_were_measured(kept_folder: Path) -> None:
    results = [
        result("queue", [queue_row("near")]),
        result("memory", None, FAILED, error="broken"),
    ]
    said = report.keep(results, False)
    assert said == [
        "queue: kept",
        "memory: not kept, memory failed or was not measured",
    ]
    (kept,) = json.loads((kept_folder / "queue.json").read_text())["measurements"]
    assert kept["machine"]["day"] == "2026-01-02" and kept["kind"] == "near"
    assert kept["sources"] == store.content_hash(declare.find("queue"))


def test_a_quick_run_never_takes_the_place_of_a_fresh_baseline(kept_folder: Path) -> None:
    results = [result("queue", [queue_row("near")])]
    report.keep(results, False)
    assert report.keep(results, True) == [
        "queue: not kept, its figures are of this code, and a quick run would be worse"
    ]
    assert report.keep([result("cache", [row()])], True) == [
        "cache: not kept, a quick run has only a part of it"
    ]


def test_rows_that_the_documents_could_not_show_are_not_kept(kept_folder: Path) -> None:
    (said,) = report.keep([result("memory", [row(row="arena 16 B")])], False)
    assert said.startswith("memory: not kept, the documents can't show it") and "no row" in said
    assert list(kept_folder.iterdir()) == []
