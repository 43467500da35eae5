"""Counts the results of test runs: GoogleTest JSON, CTest and pytest JUnit files.

One thread, plain files, no state. A program that died before it wrote its report counts as one
failure; a skipped test counts as neither passed nor failed, and is named.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SKIPPED = "skipped: "


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    # Each with its reason. They count for nothing, and a test that never runs must be seen.
    skipped: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, other: Count) -> Count:
        skipped = self.skipped + other.skipped
        return Count(self.passed + other.passed, self.failed + other.failed, skipped)

    def skipped_lines(self) -> list[str]:
        return [SKIPPED + " ".join(one.split()) for one in self.skipped]

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed"


def count_gtest(report: Path) -> Count:
    data = json.loads(report.read_text())
    skipped = [
        f"{report.stem}: {suite.get('name')}.{case.get('name')}: {reason_of(case)}"
        for suite in data.get("testsuites", [])
        for case in suite.get("testsuite", [])
        if case.get("result") == "SKIPPED" or case.get("status") == "NOTRUN"
    ]
    failed = data["failures"] + data.get("errors", 0)
    return Count(data["tests"] - failed - len(skipped), failed, tuple(skipped))


def reason_of(case: dict[str, Any]) -> str:
    """GoogleTest's text begins with a line of file and number."""
    said = [one.get("message", "") for one in case.get("skipped", [])]
    if not said:
        return "disabled" if case.get("status") == "NOTRUN" else "no reason given"
    lines = said[0].strip().splitlines()
    return " ".join(lines[1:] or lines)


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
        else:
            said = next((one.get("message", "") for one in case.findall("skipped")), "")
            total += Count(0, 0, (f"{case.get('name')}: {said or case.get('status')}",))
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
        named = tuple(
            f"{case.get('classname')}.{case.get('name')}: {one.get('message')}"
            for case in suite.iter("testcase")
            for one in case.findall("skipped")
        )
        total += Count(number["tests"] - failed - number["skipped"], failed, named)
    return total


def last_line_count(output: str) -> Count:
    """The count in the last line of a command's output; none there is one failure."""
    lines = output.strip().splitlines()
    words = lines[-1].replace(",", "").split() if lines else []
    if len(words) == 4 and words[1] == "passed" and words[3] == "failed":
        return Count(int(words[0]), int(words[2]))
    return Count(0, 1)


def slowest(reports: Path, most: int) -> list[str]:
    """The slowest test cases of the last run, as "12.34 s  unit_cache: Suite.Case"; sorted."""
    cases: list[tuple[float, str]] = []
    for report in (reports / "gtest").glob("*.json"):
        for suite in json.loads(report.read_text()).get("testsuites", []):
            for case in suite.get("testsuite", []):
                name = f"{report.stem}: {suite.get('name')}.{case.get('name')}"
                cases.append((float(case.get("time", "0s").rstrip("s")), name))
    for junit in reports.glob("pytest*.xml"):
        for case in ElementTree.parse(junit).getroot().iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            cases.append((float(case.get("time", "0")), name))
    ctest = reports / "ctest.xml"
    if ctest.exists():
        with_cases = {report.stem for report in (reports / "gtest").glob("*.json")}
        for case in ElementTree.parse(ctest).getroot().iter("testcase"):
            if case.get("name") not in with_cases:
                cases.append((float(case.get("time", "0")), f"{case.get('name')}"))
    return [f"{seconds:6.2f} s  {name}" for seconds, name in sorted(cases, reverse=True)[:most]]
