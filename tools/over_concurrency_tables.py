"""The tables and findings of docs/reports/over_concurrency.md, from its baseline.

`./dev bench over_concurrency` prints, beside its rows, `cells`: each configuration with each number
of clients, all rounds. Text out; no state. A finding compares medians and says "within the spread"
where the rounds overlap. Errors: KeyError where the baseline was made by another version of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from cache_tables import table

RIVAL = "naive × standard"
OURS = "mpmc × lumen_arena"
BUDGET = f"{OURS}, latency budget"
NOT_PINNED = f"{OURS}, not pinned"
ALL_CPUS = f"{OURS}, a worker a CPU"
NOT_MEASURED = "not measured"
# Of the best throughput: closer ones are level, and the smaller p99 is the better.
LEVEL = 0.03
# A throughput that moves less than this "barely moved", and a p99 that grows more is worse.
BARELY = 0.05
WORSE = 0.20

# The known facts of the origin, on a machine of its own: by clients, and by configuration.
ORIGIN_CLIENTS: dict[int, dict[str, float]] = {
    4: {"p99 latency": 31.97, "IPC": 1.265, "LLC misses": 0.6037, "context switches": 8662 / 800},
    16: {
        "throughput": 295.48,
        "p99 latency": 74.56,
        "IPC": 1.105,
        "LLC misses": 0.7511,
        "context switches": 8767 / 800,
    },
}
ORIGIN = {
    RIVAL: {"throughput": 266.0, "p99 latency": 71.75, "in the queue": 0.01, "IPC": 0.52},
    OURS: {"throughput": 295.48, "p99 latency": 21.28, "in the queue": 0.02, "IPC": 1.265},
}

Cell = Mapping[str, Any]


class Cells:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._cells = {(one["configuration"], one["clients"]): one for one in document["cells"]}

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self._cells))

    def rounds(self, name: str, clients: int, figure: str) -> list[float]:
        return [v for v in self._cells[name, clients][figure] if v is not None]

    def value(self, name: str, clients: int, figure: str) -> float | None:
        found = self.rounds(name, clients, figure)
        return median(found) if found else None

    def known(self, name: str, clients: int, figure: str) -> float:
        found = self.value(name, clients, figure)
        if found is None:
            raise KeyError(f"{name}, {clients} clients: no {figure}")
        return found

    def best(self) -> str:
        """The smallest p99 among the configurations that are level with the highest throughput;
        4 clients."""
        most = max(self.known(name, 4, "throughput") for name in self.names())
        level = [n for n in self.names() if self.known(n, 4, "throughput") >= (1 - LEVEL) * most]
        return min(level, key=lambda name: self.known(name, 4, "p99 latency"))

    def differs(self, one: tuple[str, int], other: tuple[str, int], figure: str) -> bool:
        """No round of the one lies among those of the other."""
        first, second = self.rounds(*one, figure), self.rounds(*other, figure)
        return max(first) < min(second) or max(second) < min(first)


def change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.0f} %".replace("-", "−")


def shown(value: float | None, decimals: int = 2) -> str:
    return NOT_MEASURED if value is None else f"{value:,.{decimals}f}"


def with_spread(cells: Cells, name: str, clients: int, figure: str, decimals: int) -> str:
    """The median, and (largest - smallest) / median."""
    rounds = cells.rounds(name, clients, figure)
    if not rounds:
        return NOT_MEASURED
    middle = median(rounds)
    spread = f" ± {100 * (max(rounds) - min(rounds)) / middle / 2:.0f} %" if middle else ""
    return f"{middle:,.{decimals}f}{spread}"


def beside_origin(document: Mapping[str, Any]) -> str:
    """4 clients; in the queue with 1 client, whose worker is free: else it is the model's time."""
    cells = Cells(document)
    best = cells.best()
    ours = [RIVAL, OURS] if best in (RIVAL, OURS) else [RIVAL, OURS, best]
    lines = (
        ("requests/s", "throughput", 4, 2),
        ("p99, ms", "p99 latency", 4, 2),
        ("in the queue, a worker being free, mean, ms", "in the queue", 1, 3),
        ("IPC", "IPC", 4, 3),
    )
    rows = []
    for label, figure, clients, decimals in lines:
        origin = [shown(ORIGIN[name].get(figure), decimals) for name in (RIVAL, OURS)]
        here = [with_spread(cells, name, clients, figure, decimals) for name in ours]
        rows.append([label, *origin, *here])
    names = [name.replace(OURS, f"`{OURS}`").replace(RIVAL, f"`{RIVAL}`") for name in ours]
    named = [f"Lumen, best: {name}" if one == best else f"Lumen, {name}"
             for one, name in zip(ours, names)]  # fmt: skip
    heads = ["", f"origin, `{RIVAL}`", f"origin, `{OURS}`", *named]
    return table(heads, rows, 1)


def by_clients(document: Mapping[str, Any]) -> str:
    cells = Cells(document)
    few, many = ORIGIN_CLIENTS[4], ORIGIN_CLIENTS[16]
    tail = change(few["p99 latency"], many["p99 latency"])
    origin_p99 = [shown(few["p99 latency"]), shown(many["p99 latency"]), tail]
    known = [shown(many["throughput"], 1), ""]
    switches = [f"{one['context switches']:.1f}" for one in (few, many)]
    rows = [["the origin", NOT_MEASURED, *known, *origin_p99, NOT_MEASURED, "0 %", *switches]]
    for name in cells.names():
        row = [name]
        for figure, decimals in (("throughput", 1), ("p99 latency", 2)):
            row += [with_spread(cells, name, clients, figure, decimals) for clients in (4, 16)]
            row.append(change(cells.known(name, 4, figure), cells.known(name, 16, figure)))
        row.append(shown(cells.value(name, 16, "in the queue"), 1))
        row.append(f"{100 * cells.known(name, 16, 'refused'):.0f} %")
        row += [shown(cells.value(name, clients, "context switches"), 1) for clients in (4, 16)]
        rows.append(row)
    heads = ["", "requests/s, 4 clients", "16 clients", "", "p99, ms, 4 clients", "16 clients", ""]
    heads += ["in the queue, 16 clients, ms", "refused", "context switches a request, 4 clients"]
    return table([*heads, "16 clients"], rows, 1)


def holds(cells: Cells, name: str) -> str:
    gain = cells.known(name, 16, "throughput") / cells.known(name, 4, "throughput") - 1
    tail = cells.known(name, 16, "p99 latency") / cells.known(name, 4, "p99 latency") - 1
    moved = f"throughput {100 * gain:+.0f} %, p99 {100 * tail:+.0f} %".replace("-", "−")
    queue = cells.known(name, 16, "in the queue") - cells.known(name, 4, "in the queue")
    where = f"; {queue:.1f} ms more of each request are spent in the queue"
    if abs(gain) < BARELY and tail > WORSE:
        return f"holds ({moved}{where})"
    if tail > WORSE:
        return f"holds for the tail, while throughput moves too ({moved}{where})"
    return f"does not hold ({moved})"


def held_against(cells: Cells, name: str, other: str, clients: int, figure: str, unit: str) -> str:
    one, two = cells.known(name, clients, figure), cells.known(other, clients, figure)
    said = f"{one:,.1f} against {two:,.1f} {unit}"
    if not cells.differs((name, clients), (other, clients), figure):
        return f"{said}, within the spread of the rounds"
    return f"{said} ({change(two, one)})"


def findings(document: Mapping[str, Any]) -> str:
    """Sentences of which each follows from the cells: no figure of the page is typed by hand."""
    cells = Cells(document)
    refused = 100 * cells.known(BUDGET, 16, "refused")
    budget = document["budget_ms"]
    kinds = [n for n in cells.names() if n.endswith("× lumen_arena")]
    fastest = min(kinds, key=lambda name: cells.known(name, 16, "p99 latency"))
    slowest = max(kinds, key=lambda name: cells.known(name, 16, "p99 latency"))
    moved = [cells.value(name, 16, "migrations") for name in (OURS, NOT_PINNED)]
    lines = [
        f"**The finding**, from 4 to 16 clients with `{OURS}`: {holds(cells, OURS)}.",
        f"**With the rival** `{RIVAL}` it {holds(cells, RIVAL)}.",
        "**Queue types**, p99 with 16 clients: "
        f"{held_against(cells, fastest, slowest, 16, 'p99 latency', 'ms')} from the best "
        f"(`{fastest}`) to the worst (`{slowest}`).",
        f"**Queue and allocator**, `{OURS}` against `{RIVAL}`, 16 clients: p99 "
        f"{held_against(cells, OURS, RIVAL, 16, 'p99 latency', 'ms')}; requests/s "
        f"{held_against(cells, OURS, RIVAL, 16, 'throughput', '')}.",
        "**Pinning**, pinned against not pinned, 16 clients: p99 "
        f"{held_against(cells, OURS, NOT_PINNED, 16, 'p99 latency', 'ms')}; migrations of the "
        f"server's threads {shown(moved[0], 0)} against {shown(moved[1], 0)}.",
        "**A second worker**, a worker a CPU against one, 16 clients: requests/s "
        f"{held_against(cells, ALL_CPUS, OURS, 16, 'throughput', '')}; p99 "
        f"{held_against(cells, ALL_CPUS, OURS, 16, 'p99 latency', 'ms')}.",
        f"**Admission**, a latency budget of {budget:.0f} ms against none, 16 clients: p99 "
        f"{held_against(cells, BUDGET, OURS, 16, 'p99 latency', 'ms')}; requests/s "
        f"{held_against(cells, BUDGET, OURS, 16, 'throughput', '')}; {refused:.0f} % of the "
        "requests are refused at once, whose clients come back a second later.",
    ]
    return "".join(f"* {line}\n" for line in tidy(lines))


def tidy(lines: Sequence[str]) -> list[str]:
    return [" ".join(line.replace(" ,", ",").split()) for line in lines]
