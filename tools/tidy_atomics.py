"""tidy's rules for atomics: every order is named and argued, every pairing has both its sides.

Pure functions over the texts of include/ and src/. A site is a line of code that names an order;
its comment stands on that line or a few above (`comment_reach_lines`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import tidy_cpp

ORDER = re.compile(r"\bmemory_order(?:_|::)(relaxed|consume|acquire|release|acq_rel|seq_cst)\b")
LABEL = re.compile(r"\bsync\[([A-Za-z0-9_.\-]+)\]")
DECLARED = re.compile(r"\batomic(?:_ref)?<[^;(){}=]*?>+[&\s]+(\w+)")
# A constant that stands for an order, as in `constexpr auto kPublish = kBlocking ? ... : ...;`
ALIAS = re.compile(
    r"\b(?:constexpr|const)\s+(?:auto|std::memory_order)\s+(\w+)\s*=\s*([^;]*?\bmemory_order[^;]*);"
)
ARGUED = re.compile(r"\brelaxed\b[^:\n]{0,40}:")
ARGUED_REGION = re.compile(r"\brelaxed,? (everywhere|all of them):")
UNAMBIGUOUS = re.compile(
    r"(?:\.|->)(fetch_(?:add|sub|and|or|xor)|compare_exchange_(?:weak|strong)|test_and_set)\s*\("
)
DOCUMENTED = re.compile(r"sync\[([A-Za-z0-9_.\-]+)\]|^\|\s*`([A-Za-z0-9_.\-]+)`\s*\|", re.MULTILINE)
ACQUIRES = {"consume", "acquire", "acq_rel", "seq_cst"}
RELEASES = {"release", "acq_rel", "seq_cst"}


@dataclass(frozen=True)
class Site:
    path: str
    line: int
    orders: frozenset[str]


@dataclass(frozen=True)
class Problem:
    path: str
    line: int
    message: str


def _calmed_lines(lines: list[str]) -> set[int]:
    """Lines in the region of a `relaxed everywhere:` comment: the block below it or around it."""
    calmed: set[int] = set()
    for index, line in enumerate(lines):
        if not ARGUED_REGION.search(line):
            continue
        indent = len(line) - len(line.lstrip())
        for end in range(index, len(lines)):
            calmed.add(end + 1)
            text = lines[end].lstrip()
            outdent = len(lines[end]) - len(text)
            closes = text.startswith("};") or (text.startswith("}") and indent == 0)
            if (text.startswith("}") and outdent < indent) or (closes and outdent == indent):
                break
    return calmed


def _spelled_out(code: str) -> str:
    """The code with each constant that stands for an order replaced by that order.

    The declaration itself loses its orders: it is no site, its uses are.
    """
    aliases = {match.group(1): " ".join(match.group(2).split()) for match in ALIAS.finditer(code)}
    code = ALIAS.sub(lambda match: re.sub(r"\bmemory_order", "order_of", match.group(0)), code)
    for name, meaning in aliases.items():
        literal = meaning.replace("\\", r"\\")
        code = re.sub(rf"(?<!auto )(?<!memory_order )\b{name}\b", literal, code)
    return code


def _statement(code_lines: list[str], number: int) -> str:
    """The lines up to the end of the statement that line `number` (from 1) stands in."""
    first = number
    while first > 1 and not re.search(r"[;{}:]\s*$", code_lines[first - 2]) and first > number - 4:
        first -= 1
    last = number
    while (
        last < len(code_lines)
        and not re.search(r"[;{}]\s*$", code_lines[last - 1])
        and last < number + 4
    ):
        last += 1
    return "\n".join(code_lines[first - 1 : last])


def check_file(path: str, text: str, reach: int, sites: dict[str, list[Site]]) -> Iterable[Problem]:
    """Problems of one file; adds its labelled sites to `sites`."""
    lines = text.splitlines()
    code_lines = _spelled_out(tidy_cpp.code_only(text)).splitlines()
    calmed = _calmed_lines(lines)
    for number, code in enumerate(code_lines, 1):
        orders = frozenset(ORDER.findall(code))
        if not orders:
            continue
        comment = tidy_cpp.comments_near(lines, number, reach)
        labels = LABEL.findall(comment)
        strong = orders - {"relaxed"}
        if strong and not labels:
            yield Problem(
                path, number, f"{'/'.join(sorted(strong))} without a `sync[label]:` comment"
            )
        for label in labels if strong else []:
            sites.setdefault(label, []).append(Site(path, number, strong))
        # The failure order of a compare-and-swap needs no comment of its own.
        swap = ORDER.findall(_statement(code_lines, number))
        argued = (
            ARGUED.search(comment)
            or number in calmed
            or strong
            or (labels and set(swap) - {"relaxed"})
        )
        if "relaxed" in orders and not argued:
            yield Problem(path, number, "relaxed without a `relaxed:` comment that says why")


def unnamed_orders(path: str, text: str, names: set[str]) -> Iterable[Problem]:
    """Atomic operations that leave their order to the default."""
    code = _spelled_out(tidy_cpp.code_only(text))
    found = list(UNAMBIGUOUS.finditer(code))
    if names:
        known = "|".join(sorted(re.escape(name) for name in names))
        pattern = rf"\b(?:{known})(?:\[[^\]]*\])?(?:\.|->)(load|store|exchange)\s*\("
        found += re.finditer(pattern, code)
    for match in found:
        if not re.search(
            r"\bmemory_order|\border\b", tidy_cpp.arguments_after(code, match.end() - 1)
        ):
            line = tidy_cpp.line_at(code, match.start(1))
            yield Problem(path, line, f"{match.group(1)}() doesn't name its memory order")


def declared_names(text: str) -> set[str]:
    return set(DECLARED.findall(tidy_cpp.code_only(text)))


def one_sided(sites: dict[str, list[Site]]) -> Iterable[Problem]:
    for label, places in sorted(sites.items()):
        orders = frozenset().union(*(site.orders for site in places))
        first = places[0]
        if len(places) < 2:
            yield Problem(
                first.path, first.line, f"sync[{label}] has one site: where is its partner?"
            )
        elif not orders & ACQUIRES:
            yield Problem(first.path, first.line, f"sync[{label}] has no acquire side")
        elif not orders & RELEASES:
            yield Problem(first.path, first.line, f"sync[{label}] has no release side")


def compare_with_doc(
    doc_path: str, doc: str | None, sites: dict[str, list[Site]]
) -> Iterable[Problem]:
    if doc is None:
        if sites:
            yield Problem(doc_path, 1, "is missing: it lists every sync label")
        return
    listed = {
        first or second: doc.count("\n", 0, match.start()) + 1
        for match in DOCUMENTED.finditer(doc)
        for first, second in [match.groups()]
    }
    for label in sorted(set(sites) - set(listed)):
        site = sites[label][0]
        yield Problem(site.path, site.line, f"sync[{label}] isn't listed in {doc_path}")
    for label in sorted(set(listed) - set(sites)):
        yield Problem(doc_path, listed[label], f"lists `{label}`, which no code carries")
