"""Counts what the test runs said: GoogleTest JSON, CTest and pytest JUnit files.

One thread, plain files, no state. A program that died before it wrote its report counts as one
failure; a skipped test counts as neither passed nor failed, and is named.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Count:
    passed: int = 0
    failed: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed)

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed"


def count_gtest(report: Path) -> Count:
    data = json.loads(report.read_text())
    skipped = sum(
        case.get("result") == "SKIPPED" or case.get("status") == "NOTRUN"
        for suite in data.get("testsuites", [])
        for case in suite.get("testsuite", [])
    )
    failed = data["failures"] + data.get("errors", 0)
    return Count(data["tests"] - failed - skipped, failed)


def count_ctest(junit: Path, gtest_folder: Path) -> Count:
    """Cases where a program wrote a GoogleTest report, programs where it didn't."""
    if not junit.exists():
        return Count(0, 1)
    total = Count()
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        report = gtest_folder / f"{case.get('name')}.json"
        died = case.get("status") == "fail"
        if report.exists():
            counted = count_gtest(report)
            # All cases passed, yet the program failed: a sanitizer's report at exit, for one.
            total += counted if counted.failed or not died else counted + Count(0, 1)
        elif case.get("status") not in ("disabled", "notrun"):
            total += Count(0, 1) if died else Count(1, 0)
        elif case.get("status") == "notrun" and not case.findall("skipped"):
            total += Count(0, 1)
    return total


def count_pytest(junit: Path) -> Count:
    if not junit.exists():
        return Count(0, 1)
    total = Count()
    for suite in ElementTree.parse(junit).getroot().iter("testsuite"):
        number = {
            key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")
        }
        failed = number["failures"] + number["errors"]
        total += Count(number["tests"] - failed - number["skipped"], failed)
    return total


def last_line_count(output: str) -> Count:
    """The count in the last line of a command's output; none there is one failure."""
    lines = output.strip().splitlines()
    words = lines[-1].replace(",", "").split() if lines else []
    if len(words) == 4 and words[1] == "passed" and words[3] == "failed":
        return Count(int(words[0]), int(words[2]))
    return Count(0, 1)
