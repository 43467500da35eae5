"""The phases of bench/mixed.py: which clients ask for which model, how often. Pure data.

Threads: none. Errors: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

MODELS = ("mlp", "convnet", "squeezenet")  # lightest first
LIGHT = ("mlp", "convnet")
HEAVY = "squeezenet"
HEAVY_CLIENTS = 4
MANY = 16  # clients of each model
FLOOD = 256
STEADY_RATE = 1000.0  # requests/s to mlp beside squeezenet's throughput
FLOOD_SECONDS = 0.6
OPEN_LOAD = 0.8  # of the server's own rate; each of n models gets an n-th


@dataclass(frozen=True)
class Load:
    """The clients of one model, in a closed loop unless there is a rate."""

    model: str
    clients: int
    rate: float = 0.0
    part: float = 0.0  # an open loop: of this server's own throughput alone with MANY clients


@dataclass(frozen=True)
class Phase:
    name: str
    loads: tuple[Load, ...]
    counts_cpu: bool = False
    least_seconds: float = 0.0  # a flood takes a while to rise: 256 requests of 3 ms

    def window(self, seconds: float) -> tuple[float, float]:
        """How long it is measured, and how long it warms up before."""
        return max(seconds, self.least_seconds), max(0.1, seconds / 4, self.least_seconds)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(load.model for load in self.loads)


def count(clients: int) -> str:
    return f"{clients} client{'s' if clients > 1 else ''}"


def alone(model: str, clients: int) -> Phase:
    return Phase(f"{model}, {count(clients)}", (Load(model, clients),))


def beside(model: str) -> Phase:
    """One client of a light model, and a few that keep a worker busy with the heavy one."""
    name = f"{model}, 1 client, beside {HEAVY}, {count(HEAVY_CLIENTS)}"
    return Phase(name, (Load(model, 1), Load(HEAVY, HEAVY_CLIENTS)))


def together(models: tuple[str, ...], clients: int) -> Phase:
    name = f"{' + '.join(models)}, {count(clients)} each"
    saturates = models == MODELS and clients == MANY
    return Phase(name, tuple(Load(model, clients) for model in models), saturates)


def open_loop(models: tuple[str, ...]) -> Phase:
    part = OPEN_LOAD / len(models)
    name = f"{' + '.join(models)}, open loop at {OPEN_LOAD} of the capacity"
    return Phase(name, tuple(Load(model, MANY, part=part) for model in models))


COMBINATIONS = (*combinations(MODELS, 2), MODELS)
STEADY = Phase(
    f"{HEAVY}, {count(HEAVY_CLIENTS)}, beside mlp at {STEADY_RATE:,.0f}/s",
    (Load(HEAVY, HEAVY_CLIENTS), Load("mlp", MANY, STEADY_RATE)),
)
SATURATED = together(MODELS, MANY)
FLOOD_OF_HEAVY = Phase(
    f"mlp, 1 client, in a flood on {HEAVY}, {FLOOD} clients",
    (Load("mlp", 1), Load(HEAVY, FLOOD)),
    least_seconds=FLOOD_SECONDS,
)
FLOOD_OF_LIGHT = Phase(
    f"{HEAVY}, {count(HEAVY_CLIENTS)}, in a flood on mlp, {FLOOD} clients",
    (Load(HEAVY, HEAVY_CLIENTS), Load("mlp", FLOOD)),
    least_seconds=FLOOD_SECONDS,
)
TOGETHER = tuple(
    phase
    for models in COMBINATIONS
    for phase in (together(models, 1), together(models, MANY), open_loop(models))
)
# In this order: an open loop needs the server's rate alone.
PHASES = (
    *(alone(model, MANY) for model in MODELS),
    *(alone(model, 1) for model in LIGHT),
    alone(HEAVY, HEAVY_CLIENTS),
    *(beside(model) for model in LIGHT),
    STEADY,
    *TOGETHER,
    FLOOD_OF_HEAVY,
    FLOOD_OF_LIGHT,
)
