"""The dashboard in a headless Chromium: the numbers on its pages, its requests, paths and themes.

One dashboard and one browser for all tests: each start costs seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from counters_file_writer import CountersFileWriter
from path_proxy import proxy_to
from playwright.sync_api import Browser, Page, expect, sync_playwright
from telemetry_writer import START, Rows, matrix_rows, record

CHROMIUM = "/usr/bin/chromium"
PREFIX = "/tools/lumen"
PROXY_NAME = "lumen.test"
TIMEOUT_MS = 30_000
# The link, and the heading of the page behind it.
PAGES = {
    "Latency": "Latency",
    "Stages": "Where the time goes",
    "Throughput": "Throughput against latency",
    "Heat map": "Queue type × allocator",
    "Counters": "Counters",
    "Compare": "Run against run",
    "Cache & bus": "Cache and bus",
    "Live": "Live",
    "Sources": "Sources",
}
EVIL = '<img src="http://evil.test/x.png" onerror="document.title=\'hit\'"><b>bold</b>'


@dataclass
class Dashboard:
    port: int
    rows: Rows
    folder: Path
    process: subprocess.Popen[str]

    def url(self, page: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}/{page}"


@dataclass
class Watched:
    """A page of the browser, with all that it asked for."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        self.page.goto(url)
        expect(self.page.locator("h2").first).to_be_visible(timeout=TIMEOUT_MS)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Until the script has run to its end."""
        app = self.page.locator('[data-testid="stApp"]')
        expect(app).to_have_attribute("data-test-script-state", "notRunning", timeout=TIMEOUT_MS)

    def turn_to(self, name: str) -> None:
        """Another page of the dashboard, by its link: nothing is loaded anew."""
        self.page.get_by_role("link", name=name, exact=True).click()
        heading = self.page.get_by_role("heading", name=PAGES[name], exact=True)
        expect(heading).to_be_visible(timeout=TIMEOUT_MS)
        self.settle()

    def outside(self) -> list[str]:
        inside = re.compile(r"^(data:|blob:|(https?|wss?)://(127\.0\.0\.1|lumen\.test)[:/])")
        return [url for url in self.requests if not inside.match(url)]


def files_of_the_test(folder: Path) -> tuple[Rows, list[Path]]:
    rows = matrix_rows(200)
    evil = Rows(
        [
            record(START + timedelta(seconds=50, milliseconds=n), 1e6, request_id=EVIL, model=EVIL)
            for n in range(3)
        ]
    )
    rows.records += evil.records
    counters = CountersFileWriter(folder / "server.counters")
    counters.model(0, "mlp")
    counters.writer(0, role=2)
    counters.record(0, "total", *range(100_000, 200_000, 1_000))
    return rows, [rows.write(folder / "run.csv"), folder / "server.counters"]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory, project_root: Path) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("dashboard")
    rows, files = files_of_the_test(folder)
    command = [
        sys.executable, "-m", "lumen_engine", "dashboard", "--port", "0",
        "--base-url-path", PREFIX, "--proxy-host", PROXY_NAME,
        *map(str, files), str(project_root / "bench/baselines/matrix_mlp.json"),
    ]  # fmt: skip
    # A home without anything: a first start must not ask for an e-mail address.
    env = {**os.environ, "PYTHONPATH": str(project_root / "python"), "HOME": str(folder)}
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port = 0
    while not port and (line := process.stdout.readline()):
        match = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        port = int(match[1]) if match else 0
    assert port, "the dashboard did not start"
    yield Dashboard(port, rows, folder, process)
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", f"--host-resolver-rules=MAP {PROXY_NAME} 127.0.0.1"]
        with playwright.chromium.launch(executable_path=CHROMIUM, args=arguments) as found:
            yield found


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        found = Watched(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("websocket", lambda socket: found.requests.append(socket.url))
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        yield found


def metric(page: Page, label: str) -> str:
    found = page.locator('[data-testid="stMetric"]').filter(has_text=label)
    return found.locator('[data-testid="stMetricValue"]').inner_text()


def choose(watched: Watched, label: str, value: str) -> None:
    box = watched.page.get_by_role("combobox", name=re.compile(label)).first
    box.click()
    watched.page.get_by_role("option", name=value, exact=True).click()
    watched.page.keyboard.press("Escape")


def p99(rows: Rows, **wanted: str) -> float:
    values = rows.totals(**wanted)
    return next(v for i, v in enumerate(values, 1) if i >= 0.99 * len(values) - 1e-9)


def test_the_summary_has_the_numbers_of_the_file(dashboard: Dashboard, watched: Watched) -> None:
    page = watched.open(dashboard.url())
    assert metric(page, "Requests") == f"{len(dashboard.rows.records):,}"
    queues = {each["queue_type"] for each in dashboard.rows.records}
    best = min(
        p99(dashboard.rows, queue_type=queue, allocator_type=allocator)
        for queue in queues
        for allocator in ("lumen_arena", "standard")
    )
    assert metric(page, "Best p99") == f"{best:.3g} µs"
    assert metric(page, "Configurations") == "10"
    expect(page.locator(".js-plotly-plot .bartext").first).to_be_visible(timeout=TIMEOUT_MS)


def test_a_filter_changes_the_numbers_to_those_of_its_rows(
    dashboard: Dashboard, watched: Watched
) -> None:
    page = watched.open(dashboard.url())
    choose(watched, "Queue type", "naive")
    wanted = dashboard.rows.totals(queue_type="naive")
    metric_value = page.locator('[data-testid="stMetric"]').filter(has_text="Requests")
    expect(metric_value).to_contain_text(f"{len(wanted):,}", timeout=TIMEOUT_MS)
    watched.settle()
    assert metric(page, "Configurations") == "2"
    best = min(
        p99(dashboard.rows, queue_type="naive", allocator_type=name)
        for name in ("lumen_arena", "standard")
    )
    assert metric(page, "Best p99") == f"{best:.3g} µs"


def test_the_drawn_curve_ends_at_the_slowest_request(
    dashboard: Dashboard, watched: Watched
) -> None:
    page = watched.open(dashboard.url("latency"))
    expect(page.locator(".js-plotly-plot .scatterlayer").first).to_be_visible(timeout=TIMEOUT_MS)
    ends = page.evaluate(
        "() => document.querySelector('.js-plotly-plot')._fullData.map("
        "t => [t.name, t.x[t.x.length - 1], t.y[t.y.length - 1]])"
    )
    slowest = {name: (x, y) for name, x, y in ends}
    totals = dashboard.rows.totals(queue_type="naive", allocator_type="standard")
    x, y = slowest["naive · standard"]
    assert x == len(totals)
    # The unit of the axis is that of the slowest series, ms.
    assert y * 1e3 == pytest.approx(totals[-1], rel=1e-5)


def test_every_page_loads_nothing_from_outside_and_has_no_error(
    dashboard: Dashboard, watched: Watched
) -> None:
    page = watched.open(dashboard.url())
    for name in PAGES:
        watched.turn_to(name)
        expect(page.locator('[data-testid="stException"]')).to_have_count(0)
    assert watched.outside() == []
    assert any(url.startswith("ws://") for url in watched.requests)
    assert watched.errors == []


def test_markup_in_ids_and_models_is_shown_as_text(dashboard: Dashboard, watched: Watched) -> None:
    page = watched.open(dashboard.url("latency"))
    page.locator('[data-testid="stSelectbox"]').filter(has_text="One for each").click()
    page.get_by_role("option", name="Model", exact=True).click()
    legend = page.locator(".js-plotly-plot .legendtext").filter(has_text="<img")
    expect(legend.first).to_be_visible(timeout=TIMEOUT_MS)
    for name in ("Stages", "Compare", "Sources"):
        watched.turn_to(name)
        assert page.locator("img[src*=evil], b:text('bold')").count() == 0
    assert page.title() != "hit"
    assert not any("evil.test" in url for url in watched.requests)


def test_it_works_under_a_path_and_a_name_behind_a_proxy(
    dashboard: Dashboard, watched: Watched
) -> None:
    with proxy_to(("127.0.0.1", dashboard.port), PREFIX) as proxy:
        page = watched.open(f"http://{PROXY_NAME}:{proxy.port}{PREFIX}/")
        assert metric(page, "Requests") == f"{len(dashboard.rows.records):,}"
        watched.turn_to("Stages")
        assert proxy.upgraded >= 1
        assert all(path.startswith(PREFIX) for path in proxy.paths)
    assert watched.outside() == []


def test_no_process_is_left_when_the_command_ends(dashboard: Dashboard) -> None:
    """The command becomes the server: one process, which the caller's signals reach."""
    process = Path("/proc") / str(dashboard.process.pid)
    assert b"serve.py" in (process / "cmdline").read_bytes()
    tasks = [task / "children" for task in (process / "task").iterdir()]
    assert not any(task.read_text() for task in tasks)


def test_the_legend_is_free_of_the_buttons(dashboard: Dashboard, watched: Watched) -> None:
    page = watched.open(dashboard.url("latency"))
    chart = page.locator(".js-plotly-plot").first
    chart.hover()
    legend, buttons = (
        chart.locator(each).bounding_box() for each in (".infolayer > .legend", ".modebar")
    )
    assert legend is not None and buttons is not None
    assert legend["x"] + legend["width"] <= buttons["x"]
    plot = chart.locator(".nsewdrag").first.bounding_box()
    assert plot is not None and plot["x"] + plot["width"] <= buttons["x"] + 1


def test_a_page_of_another_name_is_refused(dashboard: Dashboard, browser: Browser) -> None:
    """DNS rebinding: a stranger's name that means 127.0.0.1."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port)
    upgrade = {
        "Host": "evil.test", "Origin": "http://evil.test", "Connection": "Upgrade",
        "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    connection.request("GET", f"{PREFIX}/_stcore/stream", headers=upgrade)
    assert connection.getresponse().status == 403


def test_it_listens_on_this_machine_only(dashboard: Dashboard) -> None:
    inodes = set()
    for entry in Path(f"/proc/{dashboard.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed: it was listening nowhere
            if match := re.match(r"socket:\[(\d+)\]", os.readlink(entry)):
                inodes.add(match[1])
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[9] in inodes and parts[3] == "0A":
                addresses.add(parts[1].partition(":")[0])
    assert addresses == {"0100007F"}


def test_the_live_page_shows_the_counters_of_a_server(
    dashboard: Dashboard, watched: Watched
) -> None:
    page = watched.open(dashboard.url("live"))
    expect(page.get_by_text("mlp", exact=True).first).to_be_attached(timeout=TIMEOUT_MS)
    expect(page.locator('[data-testid="stException"]')).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_follows_the_browser(dashboard: Dashboard, browser: Browser, theme: str) -> None:
    with browser.new_context(color_scheme=theme) as context:
        watched = Watched(context.new_page())
        page = watched.open(dashboard.url())
        colour = page.evaluate(
            "() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
        )
    red = int(re.findall(r"\d+", colour)[0])
    assert (red > 128) == (theme == "light")


def test_new_lines_of_a_file_appear_without_a_reload(
    dashboard: Dashboard, watched: Watched
) -> None:
    page = watched.open(dashboard.url())
    before = len(dashboard.rows.records)
    more = record(START + timedelta(seconds=99), 50.0, queue_type="spsc")
    with (dashboard.folder / "run.csv").open("a") as file:
        file.write(",".join(more.values()) + "\n")
    dashboard.rows.records.append(more)
    found = page.locator('[data-testid="stMetric"]').filter(has_text="Requests")
    expect(found).to_contain_text(f"{before + 1:,}", timeout=TIMEOUT_MS)
