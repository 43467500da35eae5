#!/usr/bin/env python3
"""Pictures of the dashboard's pages, in both themes, by a headless Chromium.

  tools/dashboard_pictures.py FOLDER PATH...   FOLDER gets PAGE-THEME-WIDTH.png of each page
  tools/dashboard_pictures.py --docs PATH...   renews docs/dashboard.png, docs/dashboard/live.png

A page of a live server is looked at for LIVE_S seconds, so that its lines have begun. Needs the
packages that ./dev test installs. Errors: an assertion, or a Playwright error.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = "/usr/bin/chromium"
PAGES = (
    *("", "latency", "stages", "throughput", "heat-map", "counters", "compare", "cache-bus"),
    *("live", "sources"),
)
LIVE_S = 25
SETTLE_MS = 1_500  # Plotly draws after Streamlit says that it is done
HEIGHT, TALLEST = 900, 3_200
COLOURS = 128  # a palette makes a third of the file


def start(paths: list[str]) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "lumen_engine", "dashboard", "--port", "0", *paths]
    env = {"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            return process, match[0]
    raise SystemExit("dashboard_pictures: the dashboard did not start")


def picture(browser: Browser, url: str, theme: str, width: int, height: int = 0) -> Image.Image:
    """`height` 0: as tall as the page."""
    with browser.new_context(
        viewport={"width": width, "height": height or HEIGHT},
        color_scheme="dark" if theme == "dark" else "light",
    ) as context:
        page = context.new_page()
        page.goto(url)
        page.locator("h2").first.wait_for()
        page.wait_for_selector('[data-test-script-state="notRunning"]')
        page.wait_for_timeout(LIVE_S * 1_000 if url.endswith("/live") else SETTLE_MS)
        if not height:
            tall = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
            page.set_viewport_size({"width": width, "height": max(HEIGHT, min(tall, TALLEST))})
            page.wait_for_timeout(SETTLE_MS)
        return Image.open(io.BytesIO(page.screenshot()))


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"{path} ({path.stat().st_size // 1024} kB)")


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    process, url = start(arguments[1:])
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            if arguments[0] == "--docs":
                docs = ROOT / "docs"
                save(picture(browser, f"{url}/latency", "light", 1280, 760), docs / "dashboard.png")
                save(picture(browser, f"{url}/live", "dark", 1280), docs / "dashboard" / "live.png")
                return 0
            for page in PAGES:
                for theme, width in (("light", 1280), ("dark", 1280), ("light", 800)):
                    image = picture(browser, f"{url}/{page}", theme, width)
                    save(image, Path(arguments[0]) / f"{page or 'summary'}-{theme}-{width}.png")
    finally:
        process.terminate()
        process.wait(30)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
