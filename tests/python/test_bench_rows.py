"""Rows of benches: the best rival, the direction of a ratio, verdicts, goals, declarations."""

from __future__ import annotations

from typing import Any

import pytest

from bench.runner import Goal, declare, goals, make_row, rows, tables
from bench.runner.main import parse
from bench.runner.turns import Contender, rows_by_kind


def row(**values: object) -> dict[str, Any]:
    plain = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0}
    return {**plain, "rival_name": "r", "ratio": 2.0, "spread": 0.1, "limit": None, **values}


ROUNDS = {"lumen": [90.0, 100.0, 110.0], "slow": [10.0] * 3, "best": [49.0, 50.0, 51.0]}


def test_a_rate_is_compared_with_the_rival_that_has_most_and_a_time_with_the_quickest() -> None:
    rate = make_row("a", "throughput", "/s", ROUNDS, more_is_better=True)
    assert (rate["ours"], rate["rival"], rate["rival_name"], rate["ratio"]) == (100, 50, "best", 2)
    time = make_row("a", "latency", "ns", ROUNDS)
    assert (time["rival"], time["rival_name"], time["ratio"]) == (10, "slow", 0.1)
    assert rate["spread"] == 0.2
    assert list(rate["rounds"]) == ["lumen", "slow", "best"]


def test_a_limit_is_no_rival_and_nothing_is_compared_where_nothing_is_better() -> None:
    made = make_row("a", "m", "/s", ROUNDS, more_is_better=True, limit="best")
    assert (made["limit"], made["rival_name"]) == (50, "slow")
    share = make_row("a", "share", "", ROUNDS, more_is_better=None)
    assert share["rival"] is None and share["ratio"] is None
    nothing = make_row("a", "refused", "requests", {"lumen": [0.0], "r": [0.0]})
    assert (nothing["ours"], nothing["ratio"], nothing["spread"]) == (0, None, None)


@pytest.mark.parametrize(
    ("ratio", "spread", "said"),
    [
        (1.3, 0.2, "ahead"),
        (1.1, 0.2, "tie"),
        (0.9, 0.2, "tie"),
        (0.7, 0.2, "**behind**"),
        (1.0, 0.0, "tie"),  # was "behind": equal figures of a bench without a spread
    ],
)
def test_a_ratio_closer_to_one_than_the_spread_is_a_tie(
    ratio: float, spread: float, said: str
) -> None:
    assert rows.verdict(row(ratio=ratio, spread=spread)) == said


def test_a_row_with_an_interval_is_judged_by_it() -> None:
    assert rows.verdict(row(ratio=1.1, spread=0.5, interval=[1.05, 1.15])) == "ahead"
    assert rows.verdict(row(ratio=1.1, spread=0.0, interval=[0.95, 1.25])) == "tie"


def test_a_limit_that_is_beaten_beyond_the_spread_is_not_shown_and_a_bound_is() -> None:
    assert rows.shown_limit(row(ours=5.0, limit=5.2)) == 5.2
    assert rows.shown_limit(row(ours=4.0, limit=5.2)) is None
    assert rows.shown_limit(row(ours=4.0, limit=5.2, is_bound=True)) == 5.2
    assert rows.shown_limit(row(ours=9.0, limit=5.2, unit="requests/s")) is None
    assert rows.shown_limit(row(ours=4.0, limit=5.2, unit="requests/s")) == 5.2


def test_a_limit_is_of_the_same_round() -> None:
    # Twice the limit in every round, while the machine itself went from 1 to 10.
    assert rows.paired_limit([2, 20, 4], [1, 10, 2]) == pytest.approx(2)
    assert rows.paired_limit([1, 2], [0, 0]) is None


# --- near and far ---------------------------------------------------------------------------------


def row_of(kind: str | None, ratio: float | None, **rounds: float) -> dict[str, Any]:
    """`ratio`: against the best of those in `rounds`."""
    more = {"rival": 1 if ratio else None, "rival_name": "boost" if ratio else None}
    samples = {name: [value] for name, value in rounds.items()}
    return row(metric="M/s", cpus=kind, ours=rounds["lumen"], ratio=ratio, rounds=samples, **more)


def grouped(*made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one["rows"][0] for one in rows.by_kind({"rows": list(made)})}


# Was: "119 times", where the cores had moved apart for the round of the slowest rival only.
def test_a_row_is_not_ahead_of_rivals_that_only_the_other_kind_of_cores_met() -> None:
    found = grouped(
        row_of("near", 1.1, lumen=10, boost=1, vyukov=9), row_of("far", 119, lumen=119, boost=1)
    )
    assert found["near"]["ratio"] == 1.1 and "lacks" not in found["near"]
    assert found["far"]["ratio"] is None and found["far"]["rival_name"] is None
    assert found["far"]["lacks"] == ["vyukov"]
    assert rows.verdict(found["far"]) == "not compared"


def test_a_row_that_is_behind_one_rival_says_so_with_any_rival_missing() -> None:
    found = grouped(
        row_of("near", 1.1, lumen=10, boost=1, vyukov=9), row_of("far", 0.5, lumen=1, boost=2)
    )
    assert found["far"]["ratio"] == 0.5 and rows.verdict(found["far"]) == "**behind**"


def test_a_bench_that_does_not_tell_cores_apart_lacks_nobody() -> None:
    made = [row_of(None, 2, lumen=2, boost=1), row_of(None, 3, lumen=3)]
    assert rows.by_kind({"rows": made})[0]["rows"] == made


def test_a_kind_of_cores_with_too_few_rounds_of_ours_has_no_row() -> None:
    ours, rival = Contender("lumen", []), Contender("r", [])
    ours.samples = {"near": [{"m": 2.0}, {"m": 4.0}], "far": [{"m": 1.0}]}
    rival.samples = {"near": [{"m": 6.0}, {"m": 6.0}], "far": [{"m": 1.0}]}
    (made,) = rows_by_kind("a", "m", "ns", ours, [rival], limit=lambda kind: 1.5)
    assert (made["cpus"], made["ours"], made["ratio"], made["limit"]) == ("near", 3, 2, 1.5)


# --- goals and declarations -----------------------------------------------------------------------


def test_each_rule_of_a_goal_holds_and_fails() -> None:
    good = row(ours=9.0, limit=10.0, rival=8.5, ratio=1.0, spread=0.1)
    cases: dict[str, tuple[float, float]] = {
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
        held = [Goal("", rule, bound, "w").is_reached(good, [good]) for bound in bounds]
        assert held == [True, False], rule
    assert Goal("", "level", 0.25, "w").is_reached(row(ratio=0.95), [])
    assert not Goal("", "level", 0.25, "w").is_reached(row(ratio=0.6, spread=0.9), [])


def test_a_goal_without_a_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rule 'at_mots'; wanted at_most"):
        Goal("", "at_mots", 1, "w")


def test_a_goal_that_is_missed_is_named_by_its_rows_figures() -> None:
    memory = declare.find("memory").goals
    made = [
        row(row="arena 16 B", ours=0.5),
        row(row="dense", metric="record", ours=5.0, limit=4.0),
        row(row="chunked", ours=0.6, ratio=0.95),
    ]
    said = tables.unreached(memory, made)
    assert "* dense: 5.00 ns; wanted: within 10 %" in said
    assert "arena" not in said and "chunked" not in said
    made[1]["ours"] = 4.4
    assert "Every goal" in tables.unreached(memory, made)
    without = goals.without_rows(memory, made[:2])
    assert [goal.rows for goal in without] == ["chunked|reservation"]
    assert tables.unreached(declare.find("server").goals, [row(row="squeezenet, 1 client")]) == ""


@pytest.mark.parametrize("name", declare.names())
def test_every_bench_tells_its_question_its_files_and_its_arguments(name: str) -> None:
    bench = declare.find(name)
    assert bench.question.startswith("The question:"), name
    assert bench.title and bench.sources and bench.quick_minutes > 0
    for words in ((), ("--quick", *bench.quick_words), *(part.words for part in bench.parts)):
        run = parse(bench, words)
        assert run.rounds >= 1 and run.seconds > 0
        assert set(run.groups) <= set(bench.groups)


def test_a_name_that_no_bench_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError, match="no bench 'buss'; wanted one of: breakdown bus"):
        declare.find("buss")
    with pytest.raises(SystemExit):
        parse(declare.find("cache"), ["--only", "fives"])
    assert "--only fives: wanted some of five, kinds" in capsys.readouterr().err


def test_only_rows_that_are_asked_for_are_kept() -> None:
    run = parse(declare.find("queue"), ["--rows", "^spsc", "--json"])
    run.add(row(row="spsc 1:1"), None, row(row="mpmc 1:1"))
    assert [one["row"] for one in run.rows] == ["spsc 1:1"]
    assert run.document("queue") == {"bench": "queue", "rows": run.rows}
