"""docs/hardening.md names tests that exist, and none that are skipped everywhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    line.split("|")
    for line in (ROOT / "docs" / "hardening.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| attack")
]
NOT_YET = "**not there yet**"


def names_of_tests() -> set[str]:
    names: set[str] = set()
    for file in (ROOT / "tests").rglob("*_test.cc"):
        found = re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", file.read_text(), re.MULTILINE)
        names |= {f"{suite}.{name}" for suite, name in found}
    for file in (ROOT / "tests").rglob("test_*.py"):
        names |= set(re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE))
    return names


def test_each_row_names_tests_that_exist() -> None:
    assert len(ROWS) > 40
    names = names_of_tests()
    for _, attack, answer, tests, _ in ROWS:
        named = re.findall(r"`([^`]+)`", tests)
        missing = [one for one in named if one not in names]
        assert not missing, f"{attack.strip()}: no such test: {missing}"
        assert named or NOT_YET in answer, f"{attack.strip()}: no test"


def test_rows_without_a_test_say_so() -> None:
    assert sum(NOT_YET in answer for _, _, answer, _, _ in ROWS) == 0
