"""The dashboard's pages without a browser, its start, and its imports."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from pathlib import Path

import pytest
from lumen_engine import dashboard as command
from streamlit.testing.v1 import AppTest
from telemetry_writer import Rows, forms_document, matrix_rows

from dashboard import app as application
from dashboard import settings


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    found = matrix_rows(60)
    path = found.write(tmp_path / "run.csv")
    monkeypatch.setattr(sys, "argv", ["dashboard.py", str(path)])
    return found


def run(project_root: Path) -> AppTest:
    """`streamlit run dashboard.py -- PATH`, as far as that goes without a server."""
    app = AppTest.from_file(str(project_root / "dashboard.py"), default_timeout=60).run()
    assert not app.exception
    return app


def metrics(app: AppTest) -> dict[str, str]:
    return {each.label: each.value for each in app.metric}


def test_filters_leave_the_requests_that_they_name(rows: Rows, project_root: Path) -> None:
    app = run(project_root)
    assert metrics(app)["Requests"] == "600"
    for name, value in (("queue_type", "spsc"), ("allocator_type", "standard"), ("model", "mlp")):
        app.multiselect(key=f"filter_{name}").select(value)
    app.run()
    wanted = rows.totals(queue_type="spsc", allocator_type="standard", model="mlp")
    assert metrics(app)["Requests"] == str(len(wanted))
    assert metrics(app)["Configurations"] == "1"
    app.multiselect(key="filter_status").select("429").run()
    wanted = rows.totals(queue_type="spsc", allocator_type="standard", model="mlp", status="429")
    assert metrics(app)["Requests"] == str(len(wanted))


def test_the_split_makes_the_configurations(rows: Rows, project_root: Path) -> None:
    app = run(project_root)
    for split, wanted in (("Queue type", "5"), ("Model", "2"), ("Run", "1"), ("Status", "2")):
        app.selectbox(key="split").select(split).run()
        assert metrics(app)["Configurations"] == wanted


def test_without_a_file_each_page_says_the_next_step(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["dashboard.py"])
    monkeypatch.chdir(tmp_path)
    app = run(project_root)
    assert "telemetry_csv_path" in app.info[0].value


def test_forms_of_a_model_have_a_picture_the_reason_and_a_table(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forms.json").write_text(json.dumps(forms_document()))
    monkeypatch.setattr(sys, "argv", ["dashboard.py", str(tmp_path / "forms.json")])
    only = [page for page in application.PAGES if page[0] == "Compare"]
    monkeypatch.setattr(application, "PAGES", only)
    app = run(project_root)
    told = " ".join(one.value for one in app.info).replace("\\", "")
    assert "2.00 times as fast" in told
    (table,) = app.dataframe
    assert table.value["form"].tolist() == ["f32", "int8 ✓"]
    assert table.value["× f32"].tolist() == ["1.00", "2.00"]


def test_a_problem_of_a_file_is_shown_on_the_first_page(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr(sys, "argv", ["dashboard.py", str(tmp_path / "x.csv")])
    app = run(project_root)
    assert "is no telemetry CSV" in app.warning[0].value.replace("\\", "")


def test_both_ways_to_start_it_have_the_same_settings(project_root: Path) -> None:
    written = tomllib.loads((project_root / ".streamlit" / "config.toml").read_text())
    flat: dict[str, str] = {}

    def flatten(prefix: str, table: dict[str, object]) -> None:
        for key, value in table.items():
            name = f"{prefix}{key}"
            if isinstance(value, dict):
                flatten(f"{name}.", value)
            elif isinstance(value, list):
                assert (name, value) == ("server.allowedHosts", list(settings.HOSTS))
            else:
                flat[name] = str(value).lower() if isinstance(value, bool) else str(value)

    flatten("", written)
    assert flat == settings.OPTIONS


def test_the_command_passes_paths_port_and_path_on(tmp_path: Path) -> None:
    words = command.command_of(
        [str(tmp_path), "--port", "0", "--base-url-path", "/a/b/", "--proxy-host", "ml.example"]
    )
    assert words[0] == sys.executable
    assert Path(words[1]).is_file()
    assert words[words.index("--") + 1 :] == [str(tmp_path)]
    for flag in (
        "--server.port=0",
        "--server.address=127.0.0.1",
        "--server.baseUrlPath=a/b",
        "--server.allowedHosts=ml.example",
        "--browser.gatherUsageStats=false",
        "--server.showEmailPrompt=false",
    ):
        assert flag in words


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_that_cannot_be_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.command_of([f"--port={port}"])
    assert f"'{port}' is no port" in capsys.readouterr().err


def test_missing_packages_are_named_with_the_way_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "NEEDED", ("streamlit", "not_there_at_all"))
    with pytest.raises(SystemExit, match=r"has no not_there_at_all: pip install"):
        command.command_of([])


def test_the_dashboard_knows_the_formats_and_nothing_else_of_lumen(project_root: Path) -> None:
    allowed = {"lumen_engine.counters_file"}
    for path in sorted((project_root / "python" / "dashboard").rglob("*.py")):
        text = path.read_text()
        # In the tree it is `dashboard`, in a wheel `lumen_engine._app.dashboard`.
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                top = (node.module or "").partition(".")[0]
                assert top != "dashboard", f"{path}: import relatively"
                assert top != "lumen_engine" or node.module in allowed, f"{path}: {node.module}"
        assert "unsafe_allow_html" not in text, path


def test_the_extra_of_the_wheel_has_the_packages_of_the_command(project_root: Path) -> None:
    project = tomllib.loads((project_root / "pyproject.toml").read_text())
    pins = project["project"]["optional-dependencies"]["dashboard"]
    assert {pin.partition("==")[0] for pin in pins} >= set(command.NEEDED)
    packages = project["tool"]["scikit-build"]["wheel"]["packages"]
    assert packages["lumen_engine/_app/dashboard"] == "python/dashboard"
