"""The live view of `lumen top`: a View as lines of styled text. Pure.

Made for 80 columns and more; texts that do not fit are cut, numbers never. Without colour the
stages in a bar are told apart by letters, threads' bars by three kinds of block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from lumen_engine.top import units
from lumen_engine.top.plain import failures_of, further, model_cells
from lumen_engine.top.view import ModelView, ServerView, ThreadView, View

# Okabe and Ito's palette, which the colour-blind can tell apart.
STAGE_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#0072b2", "#cc79a7", "#d55e00", "#f0e442")
STAGE_LETTERS = {
    "parse": "p",
    "queue": "q",
    "preprocess": "e",
    "inference": "I",
    "postprocess": "o",
    "write": "w",
}
BUSY, SPIN, PARK = "█", "▒", "·"
THREAD_COLOURS = {BUSY: "#d55e00", SPIN: "#e69f00", PARK: "dim"}

COLUMNS = ("model", "req/s", "p50", "p99", "p99.9", "queue", "rows", "hits", "fail/s")
WIDTHS = (0, 7, 7, 7, 7, 5, 4, 5, 6)  # at least; the first gets the rest
LEAST_TITLE, MOST_TITLE = 12, 40
LEAST_SPARK, MOST_SPARK = 6, 24
THREAD_BAR = 10
THREAD_CELL = 38


@dataclass
class Options:
    """The user's choices."""

    sort: int = 1  # of COLUMNS
    is_reversed: bool = False
    filter: str = ""
    has_colour: bool = True
    rates: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)


def shown_models(view: View, options: Options) -> list[ModelView]:
    """Those that the filter lets through, in order: names from a to z, numbers from the largest."""
    wanted = options.filter.casefold()
    models = [model for model in view.models if wanted in model.title.casefold()]

    def key(model: ModelView) -> tuple[float, str]:
        values = (
            0.0,
            model.requests_per_s,
            model.p50_ns,
            model.p99_ns,
            model.p999_ns,
            model.queued,
            model.rows_per_inference,
            model.cache_hit_ratio,
            model.failures_per_s,
        )
        value = values[options.sort]
        return (-(value if value is not None else -1.0), model.title)

    return sorted(models, key=key, reverse=options.is_reversed)


def server_text(server: ServerView, width: int) -> Text:
    """Two lines, and a third where there is something to say."""
    quota = ""
    if server.throttled is not None:
        quota = units.percent(server.throttled)
    first = [
        ("cpu", units.percent(server.cpu)),
        ("rss", units.size(server.rss_bytes)),
        ("throttled", quota or units.NONE),
        ("connections", f"{server.connections_open:,}"),
        ("req/s", units.count(server.requests_per_s)),
    ]
    second = [
        ("in", f"{units.size(server.received_bytes_per_s)}/s"),
        ("out", f"{units.size(server.sent_bytes_per_s)}/s"),
        ("arenas", f"{units.size(server.arena_bytes_per_s)}/s"),
        (
            "reserved",
            f"{units.size(server.memory_reserved_bytes)} of"
            f" {units.size(server.memory_bound_bytes)}",
        ),
    ]
    third = further(server)
    text = Text(no_wrap=True, overflow="ellipsis")
    for line in (first, second, third):
        if not line:
            continue
        if text:
            text.append("\n")
        cut = Text()
        for name, value in line:
            cut.append(f"{name} ", "dim").append(value, "bold").append("  ")
        cut.truncate(width)
        text.append_text(cut)
    return text


def body_text(view: View, options: Options, width: int) -> Text:
    models = shown_models(view, options)
    parts = [model_table(models, options, width), stage_bars(models, options, width)]
    parts += [failure_text(models), thread_text(view.threads, options, width)]
    return Text("\n\n").join(part for part in parts if part)


def model_table(models: list[ModelView], options: Options, width: int) -> Text:
    numbers = sum(WIDTHS[1:]) + len(WIDTHS) + 1
    longest = max((len(model.title) for model in models), default=0)
    room = max(width - numbers, LEAST_TITLE + LEAST_SPARK)
    title = min(max(longest, LEAST_TITLE), MOST_TITLE, max(room - LEAST_SPARK, LEAST_TITLE))
    spark = max(LEAST_SPARK, min(MOST_SPARK, room - title))
    text = Text(no_wrap=True)
    for i, name in enumerate(COLUMNS):
        mark = ("▲" if options.is_reversed else "▼") if i == options.sort else ""
        pad = " " * ((title if i == 0 else WIDTHS[i]) - len(name + mark))
        text.append("" if i == 0 else pad)
        text.append(name + mark, "bold underline" if mark else "bold")
        text.append(pad if i == 0 else "")
        text.append(" " * (spark + 2) if i == 1 else " ")
    for model in models:
        text.append("\n")
        for i, cell in enumerate(model_cells(model)):
            if i == 0:
                text.append(_cut(cell, title).ljust(title), "bold")
            else:
                is_failing = i == len(COLUMNS) - 1 and model.failures_per_s > 0
                text.append(cell.rjust(WIDTHS[i]), "#d55e00 bold" if is_failing else "")
            text.append(" ")
            if i == 1:
                rates = options.rates.get((model.name, model.version), ())
                text.append(units.sparkline(rates, spark) + " ", "#56b4e9")
    if not models:
        text.append("\nno model" + (f" has {options.filter!r} in its name" * bool(options.filter)))
    return text


def stage_bars(models: list[ModelView], options: Options, width: int) -> Text:
    """Of each model a bar of where a request's time goes, and its sum."""
    busy = [model for model in models if sum(model.stage_ns.values()) > 0]
    if not busy:
        return Text()
    names = list(busy[0].stage_ns)
    text = Text(no_wrap=True).append("time goes to  ", "bold")
    for i, name in enumerate(names):
        sign = "█" if options.has_colour else _letter(name, i)
        text.append(f"{sign} ", _colour(i)).append(f"{name} ", "dim")
    text.truncate(width)
    title = min(max(max(len(model.title) for model in busy), LEAST_TITLE), MOST_TITLE)
    bar = max(width - title - 11, 10)
    for model in busy:
        text.append("\n" + _cut(model.title, title).ljust(title) + " ")
        spent = list(model.stage_ns.values())
        for i, columns in enumerate(units.parts_of(spent, bar)):
            sign = "█" if options.has_colour else _letter(names[i], i)
            text.append(sign * columns, _colour(i))
        text.append(units.duration(sum(spent)).rjust(9))
    return text


def failure_text(models: list[ModelView]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for model in models:
        reasons = failures_of(model)
        if reasons:
            text.append("\n" if text else "")
            text.append(f"failed {model.title}: ", "#d55e00 bold").append(", ".join(reasons))
    return text


def thread_text(threads: list[ThreadView], options: Options, width: int) -> Text:
    if not threads:
        return Text()
    across = max(1, width // THREAD_CELL)
    down = -(-len(threads) // across)
    text = Text(no_wrap=True).append("thread     busy spin park %", "bold")
    for sign, name in ((BUSY, "busy"), (SPIN, "spin"), (PARK, "park")):
        text.append("   " + sign, THREAD_COLOURS[sign]).append(f" {name}", "dim")
    for row in range(down):
        text.append("\n")
        for thread in threads[row::down]:
            text.append_text(_thread_cell(thread))
    return text


def _thread_cell(thread: ThreadView) -> Text:
    name = f"{'I/O' if thread.role == 'io' else 'worker'} {thread.number}"
    shares = (thread.busy, thread.spin, thread.park)
    text = Text().append(name.ljust(10), "#d55e00 bold" if thread.stuck_s is not None else "")
    text.append("".join(f"{share * 100:5.0f}" for share in shares) + " ")
    signs = (BUSY, SPIN, PARK)
    for sign, columns in zip(signs, units.parts_of(shares, THREAD_BAR)):
        text.append(sign * columns, THREAD_COLOURS[sign])
    text.append(" " * (THREAD_CELL - text.cell_len))
    return text


def _letter(stage: str, number: int) -> str:
    return STAGE_LETTERS.get(stage, str(number % 10))


def _colour(number: int) -> str:
    return STAGE_COLOURS[number % len(STAGE_COLOURS)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
