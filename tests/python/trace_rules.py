"""The rules of Perfetto for a file of trace events. Errors: AssertionError."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
# Ends are reckoned in floating point: a nanosecond's thousandth.
ROUNDING_US = 1e-6


def must_be_what_perfetto_reads(events: list[Event]) -> None:
    """Google's "Trace Event Format": the fields of each kind of event, and their order."""
    threads = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    ends: dict[int, float] = {}
    open_at: dict[str, list[Event]] = {}
    for event in events:
        assert isinstance(event["pid"], int) and event["ph"] in ("M", "X", "b", "e")
        if event["ph"] == "M":
            continue
        assert isinstance(event["ts"], float) and event["ts"] >= 0 and event["name"]
        if event["ph"] == "X":
            assert event["tid"] in threads, "each track has a name"
            assert event["ts"] >= ends.get(event["tid"], 0), "no two overlap"
            ends[event["tid"]] = event["ts"] + event["dur"] - ROUNDING_US
        else:
            nested = open_at.setdefault(event["id"], [])
            if event["ph"] == "b":
                assert not nested or nested[-1]["ts"] <= event["ts"]
                nested.append(event)
            else:
                assert nested.pop()["name"] == event["name"]
    assert all(not nested for nested in open_at.values())
