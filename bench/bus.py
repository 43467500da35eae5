"""The question: what do two processes get through shared memory, against the best that there is?

  streams   process on CPU 0 --> process on CPU 1, each byte written and each byte read; the same
            where each message has another type than the one before it
  trips     CPU 0 --> CPU 1 --> CPU 0, 32 bytes, both spinning; the same by request and reply, whose
            limit is the plain round trip of the same run
  parked    round trips with both sleeping in between
  frames    C++ on CPU 0 --> NumPy on CPU 1, which multiplies each 256 frames f32[256] by a
            matrix; the limit is NumPy alone. Before, every bit of them is compared
  waits     the same with a publisher that waits for room in other ways

Rivals: Tachyon (its C face), iceoryx2 (its crate) and Aeron IPC; pipe, unix socket and boost's
message queue are those of the system. Near or far is probed around each measurement. A quick run
sends a fifth of the messages.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bench.rivals.build_bus import build_aeron, build_iceoryx2, build_tachyon, install_python
from bench.runner import ROOT, Bench, Goal, Run
from bench.runner.places import left_out, program
from bench.runner.turns import Contender, measure, named, race, rows_by_kind

# Messages of a measurement, so many that each takes some tenths of a second.
STREAMS: dict[int, dict[str, float]] = {
    32: {
        **{"lumen": 30e6, "tachyon": 30e6, "aeron": 10e6, "iceoryx2": 2e6},
        **{"pipe": 5e6, "socket": 5e6, "boost": 1e6},
    },
    1024: {
        **{"lumen": 8e6, "tachyon": 8e6, "aeron": 3e6, "iceoryx2": 2e6},
        **{"pipe": 1e6, "socket": 1e6, "boost": 1e6},
    },
}
# Of the rivals Tachyon alone has a type a message.
TYPES = {"lumen": 30e6, "tachyon": 30e6}
# The option that says how large the ring is; all else has a fixed size and one row.
RINGS = {
    **{"lumen": "--capacity", "tachyon": "--capacity"},
    **{"aeron": "--term", "iceoryx2": "--capacity"},
}
RING_BYTES = {"1 MiB": 1 << 20, "16 MiB": 1 << 24}
TRIPS = {"lumen": 1e6, "lumen call": 1e6, "tachyon": 1e6, "aeron": 1e6, "iceoryx2": 1e6}
PARKED = {"lumen": 10e3, "tachyon": 10e3, "pipe": 10e3, "socket": 10e3}
FRAMES_ROW = "f32[256] from C++ to NumPy"
FRAMES = 500_000
FEW_FRAMES = 100_000  # of iceoryx2 for Python, whose producer is Python too
WAITS = {
    "reserve": "lumen",  # spins, then parks
    "spin": "no flush",
    "flush": "flush in the wait loop",
    "sleep": "10 us sleeps",
    "park": "park at once",
}
NAMES = {"socket": "unix socket", "boost": "boost message_queue"}
QUICK_PART = 0.2


class Rivals:
    """How each contender is started; those that could not be built are missing."""

    def __init__(self, part: float) -> None:
        self.part = part  # of the messages
        own = program("bench_bus")
        self.commands = {via: [own, "--via", via] for via in ("lumen", "pipe", "socket", "boost")}
        self.commands["lumen call"] = [*self.commands["lumen"], "--row", "call"]
        built = {
            "tachyon": build_tachyon(ROOT / ".build"),
            "iceoryx2": build_iceoryx2(ROOT / ".build"),
            "aeron": build_aeron(ROOT / ".build"),
        }
        self.commands |= {name: command for name, command in built.items() if command}

    def contenders(
        self, counts: dict[str, float], words: list[str], ring: int = 1 << 20
    ) -> list[Contender]:
        found = []
        for name, count in counts.items():
            if name in self.commands:
                # The first of two options with the same name counts.
                command = [*self.commands[name], *words, "--count", str(int(count * self.part))]
                if name in RINGS:
                    command += [RINGS[name], str(ring)]
                found.append(Contender(NAMES.get(name, name), command))
        return found

    def frames(
        self, name: str, via: str, count: int, producer: list[str], is_checked: bool = True
    ) -> Contender:
        """A consumer in Python. Every bit is compared first, if it is to be checked."""
        words = [sys.executable, "-P", str(ROOT / "bench" / "bus" / "frames.py"), "--via", via]
        words += ["--count", str(int(count * self.part))]
        contender = Contender(name, [*words, "--", *producer])
        check = [*words, "--check", "--", *producer]
        if is_checked and subprocess.run(check, stdout=subprocess.DEVNULL).returncode != 0:
            contender.failed = "frames were lost or wrong"
            left_out(name, contender.failed)
        return contender


def streams(run: Run, rivals: Rivals) -> None:
    for size, counts in STREAMS.items():
        for ring, ring_bytes in RING_BYTES.items():
            row = (f"stream {size} B, ring of {ring}", "mops", "M/s", True)
            words = ["--row", "stream", "--bytes", str(size)]
            race(run, [row], rivals.contenders(counts, words, ring_bytes))
            # The others have no ring.
            counts = {name: counts[name] for name in RINGS}
    for ring, ring_bytes in RING_BYTES.items():
        row = (f"stream 32 B, types in turns, ring of {ring}", "mops", "M/s", True)
        race(run, [row], rivals.contenders(TYPES, ["--row", "types"], ring_bytes))


def trip_rows(name: str) -> list[tuple[str, str, str, bool]]:
    return [(f"{name}, {part}", f"{part}_ns", "ns", False) for part in ("p50", "p99")]


def trips(run: Run, rivals: Rivals) -> None:
    # A small ring stays in the caches: 250 instead of 330 ns at the 99th percentile, for all.
    contenders = rivals.contenders(TRIPS, ["--row", "trip"], 1 << 16)
    race(run, trip_rows("round trip 32 B"), contenders)
    plain, call = named(contenders, "lumen"), named(contenders, "lumen call")
    limit = lambda kind: plain.middle("p50_ns", kind)  # noqa: E731
    run.add(*rows_by_kind("request and reply 32 B", "p50_ns", "ns", call, [], limit=limit))


def parked(run: Run, rivals: Rivals) -> None:
    words = ["--row", "trip", "--parked", "1"]
    race(run, trip_rows("round trip 32 B, parked"), rivals.contenders(PARKED, words))


def frames(run: Run, rivals: Rivals) -> None:
    install_python(ROOT / ".build")
    own = rivals.commands["lumen"]
    bound = rivals.frames("NumPy alone", "bound", FRAMES, [], is_checked=False)
    ours = rivals.frames("lumen", "view", FRAMES, own)
    others = [rivals.frames("iceoryx2, Python producer", "iceoryx2", FEW_FRAMES, [])]
    if "tachyon" in rivals.commands:
        theirs = rivals.commands["tachyon"]
        others.append(rivals.frames("tachyon", "tachyon", FRAMES, theirs))
    copied = rivals.frames("lumen read_into", "read_into", FRAMES, own)
    measure([bound, ours, copied, *others], run.rounds)
    limit = lambda kind: bound.middle("frames_s", kind)  # noqa: E731
    run.add(
        *rows_by_kind(
            FRAMES_ROW, "frames_s", "frames/s", ours, others, more_is_better=True, limit=limit
        )
    )


def waits(run: Run, rivals: Rivals) -> None:
    own = rivals.commands["lumen"]
    contenders = [
        rivals.frames(name, "view", FRAMES, [*own, "--wait", wait]) for wait, name in WAITS.items()
    ]
    name = f"{FRAMES_ROW}, how the publisher waits"
    race(run, [(name, "frames_s", "frames/s", True)], contenders)


GROUPS = {
    "streams": streams, "trips": trips, "parked": parked, "frames": frames, "waits": waits,
}  # fmt: skip


def measure_all(run: Run) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    rivals = Rivals(run.pick(1.0, QUICK_PART))
    for name in run.groups:
        GROUPS[name](run, rivals)


AHEAD_OR_LEVEL = "ahead of the best rival or level with it"
BENCH = Bench(
    title="The bus",
    measure=measure_all,
    minutes=3.3,
    quick_minutes=1.0,
    rounds=(7, 3),
    groups=tuple(GROUPS),
    sources=(
        "include/lumen/bus/*.h",
        "src/bus/*",
        "python/lumen_engine/bus.py",
        "python/bus/*.{cc,h}",
        "include/lumen/base/{backoff,core_distance,idle_strategy,clock,cache_line}.h",
        "src/base/{core_distance,idle_strategy}.cc",
        "bench/bus/*",
        "bench/queue/harness.h",
        "bench/rivals/{build,build_bus}.py",
        "bench/rivals/{bus_aeron,bus_tachyon}/*",
        "bench/rivals/bus_iceoryx2/**",
    ),
    packages=(
        "libboost1.81-dev | libboost1.83-dev",
        *("clang-19", "lld-19", "default-jdk-headless", "maven"),
    ),
    goals=(
        Goal("^stream 32 B", "ratio_at_least", 1.3, "1.3 times the best rival"),
        Goal("^stream 1024 B", "ratio_at_least", 1.1, "1.1 times the best rival"),
        Goal(r"^round trip 32 B, p[59]", "ratio_at_least", 1, "not above the best rival"),
        Goal("^round trip 32 B, parked", "level", 0.25, AHEAD_OR_LEVEL),
        Goal("^request and reply", "of_limit_at_most", 1.2, "within 20 % of the plain round trip"),
        Goal("to NumPy$", "of_limit_at_least", 0.9, "90 % of the rate of NumPy alone"),
        Goal(
            "how the publisher waits$",
            "level",
            0.25,
            "ahead of the other ways to wait or level with the best",
        ),
    ),
)
