"""The text format 0.0.4 of Prometheus, read strictly: faults that scrapers might let pass are
refused.

Errors: AssertionError with the line.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN")
Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def parse_labels(text: str, line: str) -> Labels:
    labels = []
    while text:
        match = LABEL.match(text)
        assert match, f"labels of {line!r}"
        labels.append((match[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])))
        text = text[match.end() :]
        assert bool(text) == (match[3] == ","), line
    assert len({name for name, _ in labels}) == len(labels), line
    return tuple(sorted(labels))


def parse(text: str) -> dict[str, Family]:
    """Each family by its name: HELP, TYPE, then its samples, together and each once."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    current = helped = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped, _, words = line[len("# HELP ") :].partition(" ")
            assert re.fullmatch(NAME, helped) and words and helped not in families, line
            families[helped] = Family("", words)
        elif line.startswith("# TYPE "):
            current, kind = line[len("# TYPE ") :].split(" ")
            assert current == helped and not families[current].kind, line
            assert kind in ("counter", "gauge", "histogram"), line
            families[current].kind = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match and NUMBER.fullmatch(match[3]), line
            family = families[current]
            suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
            assert match[1] in [current + suffix for suffix in suffixes], line
            key = (match[1], parse_labels(match[2] or "", line))
            assert key not in family.samples, line
            family.samples[key] = float(match[3].replace("Inf", "inf"))
    for name, family in families.items():
        check(name, family)
    return families


def check(name: str, family: Family) -> None:
    """Ours: counters end in _total, all but times are whole, buckets rise to +Inf, the count."""
    assert family.kind and family.samples, name
    if not name.startswith("lumen_"):
        return  # by another server's names, with its units
    if family.kind != "histogram":
        assert name.endswith("_total") == (family.kind == "counter"), name
        values = family.samples.values()
        assert all(value >= 0 for value in values), name
        assert name.endswith("_seconds") or all(value == int(value) for value in values), name
        return
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample.endswith("_bucket"):
            bound = float(dict(labels)["le"].replace("Inf", "inf"))
            rest = tuple(label for label in labels if label[0] != "le")
            series.setdefault(rest, []).append((bound, value))
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets)
        assert list(bounds) == sorted(set(bounds)) and math.isinf(bounds[-1]), (name, labels)
        assert list(counts) == sorted(counts), (name, labels)
        assert family.samples[f"{name}_count", labels] == counts[-1], (name, labels)
        assert (family.samples[f"{name}_sum", labels] > 0) == (counts[-1] > 0), (name, labels)


def value(families: dict[str, Family], sample: str, **labels: str) -> float:
    """Of one sample, by its full name and exactly its labels."""
    name = re.sub(r"_(bucket|sum|count)$", "", sample)
    family = families[name] if name in families else families[sample]
    return family.samples[sample, tuple(sorted(labels.items()))]
