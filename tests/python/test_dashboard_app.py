"""The dashboard's pages without a browser, its start, and its imports."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from dashboard.figures.palette import Palette
from dashboard.page import MAX_SERIES
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


def test_with_auto_the_series_is_the_configured_type_and_the_lane_a_filter(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Summary named `inline` the winner where `auto` was measured."""
    found = matrix_rows(60)
    for one in found.records:
        one["queue_type"] = "auto"
    path = found.write(tmp_path / "run.csv")
    monkeypatch.setattr(sys, "argv", ["dashboard.py", str(path)])
    app = run(project_root)
    assert metrics(app)["Configurations"] == "2"
    assert any("auto · lumen_arena" in each.value for each in app.caption)
    app.multiselect(key="filter_lane").select("inline").run()
    assert metrics(app)["Requests"] == str(len(found.totals(lane="inline")))
    app.selectbox(key="split").select("Queue type × lane").run()
    assert any("auto · inline" in each.value for each in app.caption)


def test_a_csv_of_connections_with_a_request_each_names_no_throughput(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = matrix_rows(60)
    for one in found.records:
        if one["queue_type"] != "naive":
            one["connect_us"] = "5.0"
    monkeypatch.setattr(sys, "argv", ["dashboard.py", str(found.write(tmp_path / "run.csv"))])
    app = run(project_root)
    table = app.dataframe[0].value
    rates = dict(zip(table["queue type"], table["requests/s"]))
    assert {queue for queue, rate in rates.items() if rate == rate} == {"naive"}
    assert any("naive" in each.value for each in app.caption)


def test_the_summary_says_what_the_clients_of_a_matrix_saw_too(
    rows: Rows, project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "queue_type,allocator_type,round_trip_p99_us,error\n"
    table += "inline,standard,20,\nauto,lumen_arena,10,\nmpmc,standard,1,failed\n"
    (tmp_path / "mlp.csv").write_text(table)
    paths = [str(tmp_path / "run.csv"), str(tmp_path / "mlp.csv")]
    monkeypatch.setattr(sys, "argv", ["dashboard.py", *paths])
    told = [each.value for each in run(project_root).caption if "lumen matrix" in each.value]
    assert len(told) == 1 and "auto · lumen_arena" in told[0] and "10 µs" in told[0]


@pytest.mark.parametrize(("clients", "told"), [((1, 2, 4), True), ((1, 2), False)])
def test_the_circled_point_is_explained_only_where_there_is_one(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    clients: tuple[int, ...], told: bool,
) -> None:  # fmt: skip
    rows = [{"clients": n, "per_second": 1000.0 * n, "latency_us": {"p50": 9, "p99": 9 + n}}
            for n in clients]  # fmt: skip
    kept = {"model": "mlp", "new_connection": False, "rows": rows}
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    (tmp_path / "new.json").write_text(json.dumps(kept | {"new_connection": True}))
    paths = [str(tmp_path / "kept.json"), str(tmp_path / "new.json")]
    monkeypatch.setattr(sys, "argv", ["dashboard.py", *paths])
    only = [page for page in application.PAGES if page[0] == "Throughput"]
    monkeypatch.setattr(application, "PAGES", only)
    (text,) = [each.value for each in run(project_root).caption if "Latency is" in each.value]
    assert ("circled" in text) == told
    assert f"Left out: {len(clients)} loads with a new connection" in text


def test_no_two_series_look_alike() -> None:
    queues = ("mpmc", "spsc", "naive", "batched", "inline", "auto")
    both = Palette(False, ("queue_type", "allocator_type"), (queues, ("lumen_arena", "standard")))
    keys = [(queue, name) for queue in queues for name in ("lumen_arena", "standard")]
    assert len({both.style(key) for key in keys}) == len(keys)
    models = tuple(f"model{number:02}" for number in range(MAX_SERIES))
    for split in ("model", "run"):
        one = Palette(False, (split,), (models,))
        assert len({one.style((name,)) for name in models}) == MAX_SERIES


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


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It was started, and showed an empty page."""
    words = [sys.executable, "-m", "lumen_engine", "dashboard", str(tmp_path / "no.csv")]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 1
    assert f"there is no {tmp_path / 'no.csv'}" in found.stderr


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
