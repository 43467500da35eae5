"""Writes the judge's results: onnx_expected.tsv, and the tables between docs/models.md's markers.

Errors: ValueError where the markers are not there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import onnx
from judges.asking import Verdict
from judges.onnx_cases import ROOT, Case
from judges.onnx_judge import BACKENDS, BY_CPU, EXPECTED, NEVER_WRONG, counts, read_expected, side

DOCUMENT = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- made by ./dev judge --write: begin -->", "<!-- end -->"
HEAD = """# Sides of the cases of ONNX's backend suite, by ./dev judge --write. Others: right.
# "right or refused": auto answered it wrongly, and fails with it until it does not.
# "right or wrong by CPU": kernels of CPUs round otherwise, most in 16 bits (set by hand).
"""

Found = dict[str, dict[str, dict[str, Verdict]]]  # by backend, case, way


def expected_side(backend: str, found: str, before: str) -> str:
    if before == BY_CPU and found.startswith(("right", "wrong")):
        return before
    is_bad = found.startswith(("wrong", "died"))
    return NEVER_WRONG if backend == "auto" and is_bad else found


def write_expected(found: Found, path: Path = EXPECTED) -> None:
    """Cases and backends that were not asked keep their sides."""
    sides = read_expected(path) if path.is_file() else {}
    for backend, cases in found.items():
        for name, verdicts in cases.items():
            of_case = sides.setdefault(name, dict.fromkeys(BACKENDS, "right"))
            of_case[backend] = expected_side(backend, side(verdicts), of_case[backend])
    lines = ["\t".join(["case", *BACKENDS])]
    for name, of_case in sorted(sides.items()):
        if set(of_case.values()) != {"right"}:
            lines.append("\t".join([name, *(of_case[backend] for backend in BACKENDS)]))
    path.write_text(HEAD + "\n".join(lines) + "\n")


def operators_of(case: Case) -> list[str]:
    """A node case has one; the expansion of a function's body is named by the function."""
    nodes = onnx.ModelProto.FromString(case.model).graph.node
    if len(nodes) == 1:
        return [nodes[0].op_type]
    return [case.name]


def table_of(title: str, by_operator: dict[str, dict[str, int]], totals: Counter[str]) -> list[str]:
    lines = [
        f"| {title} | " + " | ".join(f"`{one}`" for one in BACKENDS[1:]) + " |",
        "|---|---|---|",
    ]
    for operator, by_backend in sorted(by_operator.items()):
        cells = [
            f"{by_backend[backend]} of {totals[operator]}" if by_backend.get(backend) else ""
            for backend in BACKENDS[1:]
        ]
        lines.append(f"| {operator} | " + " | ".join(cells) + " |")
    return lines


def tables(cases: Sequence[Case], found: Found) -> str:
    spoken = {case.name: case for case in cases if not case.unspoken}
    own = {name: case for name, case in spoken.items() if not name.endswith("__rows")}
    nodes = {name: operators_of(case) for name, case in own.items() if "_expanded" not in name}
    totals = Counter(one for operators in nodes.values() for one in operators)
    lines = [
        f"{len(own)} cases of onnx {onnx.__version__} speak plain tensors, and "
        f"{len(spoken) - len(own)} of them a second time with free rows, packed with neighbours.",
        "",
        "| | right | refused with a reason | wrong |",
        "|---|---|---|---|",
    ]
    for backend, verdicts in found.items():
        by_side = counts(side(one) for one in verdicts.values())
        wrong = by_side["wrong"] + by_side["died"]
        lines.append(f"| `{backend}` | {by_side['right']} | {by_side['refused']} | {wrong} |")
    for title, kinds in (("refused", ("refused",)), ("answered wrongly", ("wrong", "died"))):
        by_operator: dict[str, dict[str, int]] = defaultdict(dict)
        for backend in BACKENDS[1:]:
            for name, operators in nodes.items():
                if not side(found.get(backend, {}).get(name, {})).startswith(kinds):
                    continue
                for one in operators:
                    by_operator[one][backend] = by_operator[one].get(backend, 0) + 1
        lines += ["", *table_of(title, by_operator, totals)]
    return "\n".join(lines)


def write_document(text: str, path: Path = DOCUMENT) -> None:
    whole = path.read_text()
    if BEGIN not in whole or END not in whole:
        raise ValueError(f"{path}: no lines {BEGIN!r} and {END!r}: add them where the tables go")
    before, rest = whole.split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


def write(cases: Sequence[Case], found: Found) -> None:
    write_expected(found)
    spoken = sum(not case.unspoken for case in cases)
    if set(found) == set(BACKENDS) and all(len(one) == spoken for one in found.values()):
        write_document(tables(cases, found))
