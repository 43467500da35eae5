"""README.md and the how-to pages: their commands work; the links of every page lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lumen_engine import Server

StartServer = Callable[..., Server]


@pytest.fixture(scope="module")
def readme(project_root: Path) -> str:
    return (project_root / "README.md").read_text()


@pytest.fixture(scope="module")
def guide(project_root: Path) -> str:
    pages = [project_root / "docs" / f"{name}.md" for name in ("tune", "observe", "from-triton")]
    return "".join(page.read_text() for page in pages)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_readme_is_a_page_that_is_read(readme: str) -> None:
    assert readme.count("\n") <= 140


def test_the_config_json_is_taken_as_it_stands(
    guide: str,
    server: StartServer,
    models_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (config,) = blocks(guide, "json")
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "config.json").write_text(config)
    monkeypatch.chdir(folder)  # relative paths of the file are taken from there
    started = server(models_path, "--config", "config.json")
    path = tmp_path / json.loads(config)["engine"]["telemetry_csv_path"].removeprefix("../")
    assert "engine mpmc x lumen_arena" in started.output and ": 8 workers" in started.output
    assert f"csv {path}\n" in started.output
    started.stop()
    header = path.read_text().splitlines()[0]
    assert header in guide


def test_the_commands_work_against_a_server_that_listens_as_they_assume(
    readme: str, guide: str, server: StartServer, models_path: Path, lumen_binary: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    found = {block for page in (readme, guide) for block in blocks(page, "sh")}
    commands = sorted(block for block in found if block.startswith(("curl ", "lumen engine ")))
    assert len(commands) >= 3
    started = server(models_path, unix=tmp_path / "lumen.sock")
    path = f"{lumen_binary.parent}:{os.environ['PATH']}"
    for command in commands:
        done = subprocess.run(
            ["bash", "-euc", command.replace("127.0.0.1:8000", started.url)],
            env={**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and done.stdout, f"{command}\n{done.stdout}{done.stderr}"
        assert '"error"' not in done.stdout, f"{command}\n{done.stdout}"


def test_the_python_client_works(readme: str, server: StartServer, models_path: Path) -> None:
    (program,) = blocks(readme, "python")
    started = server(models_path)
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:8000", started.url)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.startswith("[["), done.stderr


def test_links_lead_somewhere(project_root: Path) -> None:
    def anchors(page: Path) -> set[str]:
        heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}

    broken = []
    pages = [project_root / "README.md"]
    for page in [*pages, *(project_root / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(project_root)}: {link}")
    assert not broken
