#!/usr/bin/env python3
"""How long the dashboard takes with a large CSV, as somebody before a browser sees it.

  tools/dashboard_times.py [ROWS]   1,000,000 unless told; ROUNDS starts of the dashboard, each with

  first page  from the request for the summary until its figures are shown and nothing runs any more
  filter      from the choice of a queue type until the figures of its rows are shown
  memory      the most that the dashboard's process had

Wanted: of 1 M rows 3 s and 1 s; of 10 M rows 20 s, and 3 GiB. Not a test: other programs share the
machine (tests/python/test_dashboard_speed.py bounds the CPU time). Needs the packages of ./dev
test.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tools"), str(ROOT / "tests" / "python")]
import dashboard_pictures  # noqa: E402
from telemetry_writer import large_file  # noqa: E402

ROUNDS = 3
TIMEOUT_MS = 120_000
DONE = '[data-testid="stApp"][data-test-script-state="notRunning"]'


def shows(page: Page, rows: int) -> None:
    requests = page.locator('[data-testid="stMetric"]').filter(has_text="Requests")
    expect(requests).to_contain_text(f"{rows:,}", timeout=TIMEOUT_MS)
    page.wait_for_selector(DONE, timeout=TIMEOUT_MS)


def measure(page: Page, url: str, rows: int) -> tuple[float, float]:
    start = time.monotonic()
    page.goto(url)
    shows(page, rows)
    first_s = time.monotonic() - start
    box = page.get_by_role("combobox", name=re.compile("Queue type")).first
    box.click()
    option = page.get_by_role("option", name="mpmc", exact=True)
    option.wait_for()
    start = time.monotonic()
    option.click()
    shows(page, rows // 5)
    return first_s, time.monotonic() - start


def main(arguments: list[str]) -> int:
    rows = int(arguments[0]) if arguments else 1_000_000
    found: dict[str, list[float]] = {"first page, s": [], "filter, s": [], "memory, GiB": []}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = large_file(Path(folder) / "t.csv", rows)
        chromium = dashboard_pictures.CHROMIUM
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(ROUNDS):
            process, url = dashboard_pictures.start([str(path)])
            try:
                with browser.new_context() as context:
                    times = measure(context.new_page(), url, rows)
                status = Path(f"/proc/{process.pid}/status").read_text()
            finally:
                process.terminate()
                process.wait(30)
            peak_kib = re.search(r"VmHWM:\s+(\d+)", status)
            assert peak_kib is not None
            values = (*times, int(peak_kib[1]) / (1 << 20))
            for values_of, value in zip(found.values(), values, strict=True):
                values_of.append(value)
    for name, values_of in found.items():
        print(f"{rows:,} rows: {name:13} {median(values_of):6.2f}  of {sorted(values_of)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
