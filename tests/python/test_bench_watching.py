"""bench/watching.py: which samples are pairs; a known cost is found, and no cost is none."""

from __future__ import annotations

import random

from bench import watching
from bench.runner import tables

COST = 0.02
BLOCK_NOISE = 0.01
SERVER_NOISE = 0.003  # the difference of two equal servers


def made_up(seed: int, rounds: int = 10, blocks: int = 15) -> list[list[dict[str, float]]]:
    """10 us a request; `top`, and so `all`, costs 2 % more."""
    dice = random.Random(seed)
    found = []
    for _ in range(rounds):
        servers = {
            server: dice.lognormvariate(0, SERVER_NOISE)
            for server, _ in watching.CONTENDERS.values()
        }
        found.append(
            [
                {
                    name: 10_000
                    * servers[server]
                    * (1 + COST * ("top" in readers))
                    * dice.lognormvariate(0, BLOCK_NOISE)
                    for name, (server, readers) in watching.CONTENDERS.items()
                }
                for _ in range(blocks)
            ]
        )
    return found


def costs(rounds: list[list[dict[str, float]]]) -> dict[tuple[str, str], float]:
    return {(row["row"], row["metric"]): row["ours"] for row in watching.make_rows(rounds)}


def test_a_cost_of_2_percent_is_found_and_equal_programs_cost_nothing() -> None:
    found = costs(made_up(seed=1))
    for row in ("lumen top at 10 Hz", "all together"):
        assert found[row, "cost, lower end"] > 1, row
        assert found[row, "cost, lower end"] < 100 * COST < found[row, "cost, upper end"], row
    for row in ("the same server again", "another plain server", "scrape at 10 Hz", "CSV"):
        assert found[row, "cost, lower end"] < 0 < found[row, "cost, upper end"], row


def test_one_process_is_compared_by_block_and_two_are_by_round() -> None:
    rounds = made_up(seed=2, rounds=5, blocks=7)
    assert len(watching.pairs_of(rounds, "top", "file")) == 35
    assert len(watching.pairs_of(rounds, "all", "plain")) == 5
    assert watching.pairs_of(rounds, "top", "file")[0] == (
        rounds[0][0]["file"],
        rounds[0][0]["top"],
    )


# Many slices of few servers must not make an interval narrow that knows nothing of how much two
# servers differ by themselves.
def test_more_blocks_do_not_hide_the_difference_of_two_servers() -> None:
    widths = []
    for blocks in (10, 1000):
        found = costs(made_up(seed=3, blocks=blocks))
        row = "another plain server"
        widths.append(found[row, "cost, upper end"] - found[row, "cost, lower end"])
    assert widths[1] > 0.15  # 2 * 2.26 * 0.3 % * sqrt(2) / sqrt(10) is 0.6


def test_every_comparison_is_of_contenders_that_are_measured() -> None:
    for ours, base in watching.COMPARISONS.values():
        assert {ours, base} <= watching.CONTENDERS.keys()


def test_the_goal_is_said_with_the_row_that_it_is_for() -> None:
    said = tables.terminal(watching.BENCH.goals, watching.make_rows(made_up(seed=4)), False)
    (line,) = (line for line in said.splitlines() if "goal" in line)
    assert line.startswith("all together")
    assert line.endswith("CPU time a request: MISSED")
