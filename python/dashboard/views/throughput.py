"""Throughput against latency: the knee."""

from __future__ import annotations

import math

import streamlit as st

from ..figures.scatter import KNEE, KneeLine, knees
from ..page import Page, heading, nothing

WHAT = {"p50": "p50", "p99": "p99", "p99.9": "p999", "mean": "mean"}
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def show(page: Page) -> None:
    heading(
        "Throughput against latency",
        "To the right is more throughput, further down is less waiting. Lines are loads of one"
        " run by `lumen bench`; single points are runs of one load.",
    )
    left, right = st.columns(2)
    what = left.segmented_control("Latency", list(WHAT), default="p99") or "p99"
    found = {
        "lumen bench": _of_benches(page, WHAT[what]),
        "lumen matrix": _of_matrices(page, what),
        "telemetry": _of_rows(page, what),
    }
    kinds = [kind for kind, lines in found.items() if lines]
    kind = kinds[0] if kinds else ""
    if len(kinds) > 1:
        kind = right.segmented_control("From", kinds, default=kind) or kind
    lines = found.get(kind, [])
    if not lines:
        nothing(
            "No loads to compare.",
            "`lumen bench URL --model M --clients 1 2 4 8 16 --json > bench.json` measures them.",
        )
        return
    picture = knees(lines, page.palette, what)
    page.chart(picture, "knee")
    st.caption(" ".join(_notes(page, kind, has_knee=any(t.name == KNEE for t in picture.data))))


def _notes(page: Page, kind: str, has_knee: bool) -> list[str]:
    """What the picture's marks mean, of those that are in it."""
    notes = [
        "Latency is the server's own time."
        if kind == "telemetry"
        else f"Latency is what the clients of `{kind}` saw."
    ]
    if has_knee:
        notes.append(
            "The circled point has the most throughput for its latency (Kleinrock's power): more"
            " clients than there mostly wait."
        )
    left_out = sum(load.new_connection for load in page.selection.content.documents.loads)
    if kind == "lumen bench" and left_out:
        notes.append(
            f"Left out: {left_out:,} load{'s' * (left_out > 1)} with a new connection for each"
            " request, whose rate is that of connecting."
        )
    return notes


def _of_benches(page: Page, key: str) -> list[KneeLine]:
    allows = page.selection.choice.allows
    runs: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for load in page.selection.content.documents.loads:
        wanted = allows(run=load.run, model=load.model) and not load.new_connection
        if wanted and key in load.latency_us:
            point = (load.clients, load.per_second, load.latency_us[key])
            runs.setdefault((load.run, load.model), []).append(point)
    return [
        KneeLine(
            f"{run} · {model}",
            page.palette.numbered(number),
            [
                (rate, us, f"{clients} client{'s' if clients != 1 else ''}")
                for clients, rate, us in sorted(points)
            ],
        )
        for number, ((run, model), points) in enumerate(runs.items())
    ]


def _of_matrices(page: Page, what: str) -> list[KneeLine]:
    allows = page.selection.choice.allows
    lines = []
    runs = list(dict.fromkeys(cell.run for cell in page.selection.content.documents.cells))
    for cell in page.selection.content.documents.cells:
        rate = cell.values.get("requests_per_second")
        latency = cell.values.get(f"round_trip_{what}_us")
        wanted = allows(
            run=cell.run, model=cell.model, queue_type=cell.queue_type,
            allocator_type=cell.allocator_type,
        )  # fmt: skip
        if rate and latency and wanted and not cell.error:
            palette = type(page.palette)(page.palette.dark, ("queue_type", "allocator_type"), ())
            style = palette.style((cell.queue_type, cell.allocator_type), runs.index(cell.run))
            label = f"{cell.queue_type} · {cell.allocator_type}"
            label += f" ({cell.run})" if len(runs) > 1 else ""
            text = f"{cell.run}: {cell.clients} clients" if cell.clients else cell.run
            lines.append(KneeLine(label, style, [(rate, latency, text)]))
    return lines


def _of_rows(page: Page, what: str) -> list[KneeLine]:
    loads = {load.key: load for load in page.loads()}
    lines = []
    for each in page.series():
        load = loads[each.key]
        if not math.isfinite(load.per_second):
            continue
        latency = load.mean_us if what == "mean" else each.percentile(SHARES[what])
        point = (load.per_second, latency, f"{load.requests:,} requests, server side")
        style = page.palette.style(each.key)
        lines.append(KneeLine(each.label, style, [point]))
    return lines
