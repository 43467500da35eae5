"""The live view of `lumen top` in Textual's test harness: keys, sizes, servers that come and go.

Over synthetic files; tests/integration/test_top.py drives it in a terminal, over real servers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from lumen_engine.top.app import ChoiceScreen, HelpScreen, TopApp
from lumen_engine.top.view import View
from lumen_engine.top.watcher import Watcher
from python.counters_file_writer import CountersFileWriter
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Static

Steps = Callable[[TopApp, Pilot[None]], Awaitable[None]]


def fill(file: CountersFileWriter) -> CountersFileWriter:
    file.writer(0, role=1)
    file.writer(1, role=2)
    file.server_slot(1, "busy_ns", 1)
    for index, name in enumerate(("mlp", "squeezenet")):
        file.model(index, name, generation=index + 1)
    return file


def count_on(file: CountersFileWriter, times: int) -> None:
    """More requests: ten times as many of the second model, and slower."""
    for index, requests in enumerate((100 * times, 1000 * times)):
        file.model_slot(index, 0, "success", requests)
        file.record(index, "total", *[(index + 1) * 1_000_000] * 10)
        file.record(index, "inference", *[(index + 1) * 900_000] * 10)
    file.model_slot(0, 0, "failure", 5 * times)
    file.model_slot(0, 0, "failed_queue_full", 5 * times)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[CountersFileWriter]:
    yield fill(CountersFileWriter(tmp_path / "lumen-7.counters", pid=7))


def drive(path: Path | None, steps: Steps, size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        # Looks are the test's: one a key, none by the clock.
        app = TopApp(path, hz=0.001, follow=path is None)
        async with app.run_test(size=size) as pilot:
            await steps(app, pilot)

    asyncio.run(run())


def shown(app: TopApp) -> list[str]:
    """The lines of the whole screen."""
    return [
        "".join(segment.text for segment in strip).rstrip()
        for strip in app.screen._compositor.render_strips()
    ]


async def shows(app: TopApp, pilot: Pilot[None], text: str) -> None:
    """A line more is a new layout, which may take Textual several turns. A long line, as one with a
    path in it, is wrapped anywhere."""
    end = time.monotonic() + 20
    while "".join(text.split()) not in "".join("".join(shown(app)).split()):
        assert time.monotonic() < end, "\n".join(shown(app))
        await pilot.pause()


def order(app: TopApp) -> list[str]:
    names = [line.split(":")[0] for line in shown(app) if line.startswith(("mlp:", "squ"))]
    return names[:2]


def test_the_screen_has_models_stages_failures_and_threads(file: CountersFileWriter) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        assert "the first look…" in "\n".join(shown(app))
        count_on(file, 1)
        app.look()
        await pilot.pause()
        lines = shown(app)
        assert lines[0].startswith(" lumen 7  0.1.0-test  up 0:00:0") and "Hz" in lines[0]
        assert any(line.startswith("cpu -") and "connections 0" in line for line in lines)
        assert order(app) == ["squeezenet", "mlp"]
        (row,) = (line for line in lines if line.startswith("squeezenet:1") and "2.00 ms" in line)
        assert any(line.startswith("failed mlp:1: queue_full") for line in lines)
        assert any(line.startswith("I/O 0 ") and " worker 0 " in line for line in lines)
        assert "q quit" in lines[-1] and all(len(line) <= 80 for line in lines)

    drive(file.path, steps)


def test_keys_sort_reverse_and_filter(file: CountersFileWriter) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        count_on(file, 1)
        app.look()
        await pilot.pause()
        assert order(app) == ["squeezenet", "mlp"]
        await pilot.press("r")
        assert order(app) == ["mlp", "squeezenet"]
        await pilot.press("r", "S")
        assert order(app) == ["mlp", "squeezenet"], "by name"
        assert any("model▼" in line for line in shown(app))
        await pilot.press("S")
        assert order(app) == ["mlp", "squeezenet"], "by failures"
        await pilot.press("s", "s", "s")
        assert order(app) == ["squeezenet", "mlp"], "by p50"
        await pilot.press("slash", *"squ")
        await pilot.pause()
        assert set(order(app)) == {"squeezenet"}
        await pilot.press("enter")
        await pilot.pause()
        assert "filter: squ (Esc: all)" in shown(app)[-1]
        await pilot.press("slash", "slash")
        assert app.options.filter == "squ/"
        await pilot.press("escape")
        await pilot.pause()
        assert set(order(app)) == {"squeezenet", "mlp"}

    drive(file.path, steps)


def test_space_holds_the_screen_until_it_is_pressed_again(file: CountersFileWriter) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        count_on(file, 1)
        app.look()
        await pilot.press("space")
        assert "PAUSED" in shown(app)[0]
        file.model(1, "other", generation=9)
        app.look()
        await pilot.pause()
        assert order(app) == ["squeezenet", "mlp"]
        await pilot.press("space")
        app.look()
        await pilot.pause()
        assert any(line.startswith("other:1") for line in shown(app))

    drive(file.path, steps)


def test_help_comes_and_goes_and_q_quits(file: CountersFileWriter) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        lines = shown(app)
        assert len(lines) == 24 and any("any key closes this" in line for line in lines)
        await pilot.press("q")
        assert not isinstance(app.screen, HelpScreen), "closes the help, does not quit"
        await pilot.press("question_mark")
        app.screen.post_message(Key("space", " "))
        await pilot.press("space")
        assert app.is_running and not isinstance(app.screen, HelpScreen), "two keys at once"
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running or app._exit

    drive(file.path, steps)


@pytest.mark.parametrize("size", [(30, 8), (60, 15), (120, 40), (250, 60)])
def test_every_size_of_the_terminal_works(file: CountersFileWriter, size: tuple[int, int]) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        count_on(file, 1)
        app.look()
        await pilot.resize_terminal(*size)
        await pilot.pause()
        lines = shown(app)
        assert len(lines) == size[1] and all(len(line) <= size[0] for line in lines)
        assert lines[0].startswith(" lumen 7")

    drive(file.path, steps)


def test_without_colour_bars_are_letters(
    file: CountersFileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        count_on(file, 1)
        app.look()
        await pilot.pause()
        assert any("IIIIIIII" in line for line in shown(app))

    drive(file.path, steps)


def test_a_server_that_ends_is_told_and_its_last_counts_stay(file: CountersFileWriter) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        count_on(file, 1)
        app.look()
        file.close()
        app.look()
        await pilot.pause()
        text = "\n".join(shown(app))
        assert "DEAD" in text and "the server has ended; these are its last counts" in text
        assert "squeezenet:1" in text

    drive(file.path, steps)


def test_a_file_that_is_cut_is_told_and_the_view_stays(file: CountersFileWriter) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        count_on(file, 1)
        app.look()
        file.path.open("r+b").truncate(1000)
        app.look()
        await shows(app, pilot, "the file was cut short")
        assert "squeezenet:1" in "\n".join(shown(app))

    drive(file.path, steps)


def test_several_servers_are_a_list_to_choose_from(
    file: CountersFileWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("lumen_engine._counters_find.SHARED_MEMORY", tmp_path / "none")
    other = fill(CountersFileWriter(tmp_path / "lumen-8.counters", pid=8))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert isinstance(app.screen, ChoiceScreen)
        listed = [line for line in shown(app) if "running" in line]
        assert sorted(line.split()[1] for line in listed) == ["7", "8"]
        place = next(i for i, line in enumerate(listed) if " 8 " in line)
        await pilot.press(*["down"] * place, "enter")
        await pilot.pause()
        assert shown(app)[0].startswith(" lumen 8")
        await pilot.press("o")
        assert isinstance(app.screen, ChoiceScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, ChoiceScreen) and app.is_running

    drive(None, steps)
    other.close()


def looks(watcher: Watcher, count: int = 2) -> View | None:
    for _ in range(count - 1):
        watcher.look()
    return watcher.look()


def test_a_successor_at_the_same_path_is_watched_on(file: CountersFileWriter) -> None:
    watcher = Watcher(file.path)
    assert looks(watcher) is not None and watcher.note() == ""
    file.close()
    file.path.unlink()
    assert looks(watcher) is not None and not watcher.is_alive()
    fill(CountersFileWriter(file.path, pid=9))
    assert watcher.look() is None, "the first look at another server"
    assert watcher.look() is not None and watcher.is_alive()
    assert watcher.note() == "lumen 7 has ended; this is lumen 9"
    watcher.close()


@pytest.mark.parametrize("follow", [True, False])
def test_another_server_is_followed_only_if_none_was_named(
    file: CountersFileWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("lumen_engine._counters_find.SHARED_MEMORY", tmp_path / "none")
    watcher = Watcher(file.path, follow=follow)
    looks(watcher)
    other = fill(CountersFileWriter(tmp_path / "lumen-8.counters", pid=8))
    looks(watcher)
    assert watcher.counters.layout.pid == 7, "as long as it lives"
    file.close()
    looks(watcher)
    assert watcher.counters.layout.pid == (8 if follow else 7)
    watcher.close()
    other.close()


def test_at_ten_looks_a_second_percentiles_are_of_a_whole_second(
    file: CountersFileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000_000_000
    monkeypatch.setattr("lumen_engine.counters_file.time.monotonic_ns", lambda: now)
    watcher = Watcher(file.path)
    seconds = []
    for _ in range(30):
        now += 100_000_000
        view = watcher.look()
        seconds.append(view.seconds if view else 0)
    assert seconds[0] == 0 and seconds[1] == pytest.approx(0.1)
    assert seconds[15:] == pytest.approx([1.0] * 15, abs=0.11)
    assert len(watcher.rates["mlp", "1"]) == 29
    watcher.close()


def test_a_static_holds_no_markup_of_a_models_name(file: CountersFileWriter) -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        file.model(0, "[red]x[/red]", generation=4)
        app.look()
        await pilot.pause()
        assert any(line.startswith("[red]x[/red]:1") for line in shown(app))
        assert app.query_one("#models", Static) is not None

    drive(file.path, steps)
