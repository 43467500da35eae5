"""The page at "/", in Chromium: models, live figures, a request that works as it is copied."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.raw_http import get, post_json
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
TIMEOUT_MS = 30_000
# A tensor's name that ends a string or an element, where it is not quoted.
EVIL = "x'\"<img src=x onerror=document.title='hit'>"
ZEROS = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 256], "data": [0.0] * 256}]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Ends with a failure where the page had an error or asked another server."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    context.set_default_timeout(TIMEOUT_MS)
    one = context.new_page()
    errors: list[str] = []
    hosts: set[str] = set()
    one.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    one.on("pageerror", lambda error: errors.append(str(error)))
    one.on(
        "request", lambda asked: hosts.add(asked.url.split("/")[2]) if "//" in asked.url else None
    )
    yield one
    context.close()
    # A key that is missing and a model that is not ready are answers, too.
    assert not [error for error in errors if "401" not in error and "503" not in error], errors
    assert len(hosts) == 1, hosts


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_models(
        tmp_path_factory.mktemp("page") / "models",
        [MODELS / "mlp", MODELS / "squeezenet", FIXTURES / "row_sums"],
    )
    name = FIXTURES.parent / "backend"
    copy_models(folder, [name / "identity_fp16", name / "identity_bytes"])
    broken = folder / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"none")
    return folder


@contextmanager
def served(page: Page, models: Path, *arguments: str) -> Iterator[Server]:
    """The page leaves before the server ends, or it would ask one that is gone."""
    with Server(models, *arguments) as server:
        yield server
        page.goto("about:blank")


def opened(page: Page, server: Server, path: str = "/") -> Page:
    page.goto(f"http://{server.url}{path}")
    expect(page.locator("#models tbody tr").first).to_be_visible()
    return page


def request_of(page: Page, model: str) -> str:
    page.get_by_role("button", name=model, exact=True).click()
    expect(page.locator("#model-title")).to_contain_text(f"{model}, version ")
    return str(page.locator("#request").inner_text())


def test_each_model_has_a_request_that_works_as_it_is_copied(page: Page, models: Path) -> None:
    with served(page, models) as server:
        opened(page, server)
        expect(page.locator("#state")).to_have_text("ready")
        rows = page.locator("#models tbody tr")
        assert rows.count() == 6
        expect(rows.filter(has_text="broken")).to_contain_text("UNAVAILABLE")
        for model in ("mlp", "row_sums", "identity_bytes"):
            command = request_of(page, model)
            done = subprocess.run(
                ["sh", "-c", command.replace("curl ", "curl -sS --fail-with-body ", 1)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert json.loads(done.stdout)["model_name"] == model
        for model in ("squeezenet", "identity_fp16"):
            script = request_of(page, model)
            assert script.startswith("# pip install"), script
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, (script, done.stderr)
        page.get_by_role("button", name="broken", exact=True).click()
        expect(page.locator("#why")).to_contain_text("model.onnx")
        expect(page.locator("#request")).to_be_hidden()


def test_the_figures_are_those_of_the_traffic_and_follow_a_load(page: Page, models: Path) -> None:
    with served(page, models, "--tcp-control", "on") as server:
        opened(page, server)
        cells = page.locator("#models tbody tr", has_text="mlp").locator("td")
        expect(cells.nth(3)).to_have_text("0")
        with server.connect() as connection:
            for _ in range(50):
                assert connection.exchange(post_json("/v2/models/mlp/infer", ZEROS)).status == 200
        # A second later the rate is that of the fifty; then none again.
        expect(cells.nth(4)).to_contain_text("s", timeout=TIMEOUT_MS)
        expect(cells.nth(3)).to_have_text("0")
        with server.connect() as connection:
            reply = connection.exchange(post_json("/v2/repository/models/mlp/unload", {}))
            assert reply.status == 200
        expect(page.locator("#models tbody tr", has_text="mlp")).to_contain_text("UNAVAILABLE")


def test_a_key_is_asked_for_and_kept_for_this_page_only(
    page: Page, models: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("infer 0123456789abcdef0123456789abcdef\n")
    keys.chmod(0o600)
    with served(page, models, "--api-key-file", str(keys)) as server:
        page.goto(f"http://{server.url}/")
        expect(page.locator("#key-form")).to_be_visible()
        page.locator("#key").fill("0123456789abcdef0123456789abcdef")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#state")).to_have_text("ready")
        assert "Authorization: Bearer KEY" in request_of(page, "row_sums")
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0
        page.reload()
        expect(page.locator("#key-form")).to_be_visible()


def test_names_of_models_are_text(page: Page) -> None:
    """The script of the page, with metadata as a hostile model would have it."""
    with served(page, MODELS) as server:
        metadata = {
            "name": "mlp",
            "versions": ["1"],
            "platform": EVIL,
            "inputs": [{"name": EVIL, "datatype": "FP32", "shape": [-1]}],
            "outputs": [{"name": EVIL, "datatype": "FP32", "shape": [-1]}],
            "parameters": {"backend": EVIL, "backend_why": EVIL, "precision": EVIL},
        }
        page.route("**/versions/1", lambda route: route.fulfill(json=metadata))
        opened(page, server)
        command = request_of(page, "mlp")
        assert page.title() == "Lumen"
        assert page.locator("#model img").count() == 0
        sent = subprocess.run(
            ["sh", "-c", command.replace("curl ", "printf '%s\\n' ", 1)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(sent.stdout.splitlines()[1])["inputs"][0]["name"] == EVIL


def test_the_page_may_load_nothing_from_elsewhere(models: Path) -> None:
    with Server(models) as server, server.connect() as connection:
        for path in ("/", "/lumen.css", "/lumen.js", "/openapi.json"):
            reply = connection.exchange(get(path))
            assert reply.status == 200
            assert "default-src 'none'" in reply.headers["content-security-policy"]
            assert reply.headers["x-content-type-options"] == "nosniff"
            text = reply.body.decode()
            assert "//" not in text.replace("// ", "") or path in ("/lumen.js", "/openapi.json")
            assert "http://" not in text
            assert "https://" not in text
        assert connection.exchange(get("/lumen.js/")).status == 200
        assert connection.exchange(get("/lumen.txt")).status == 404
