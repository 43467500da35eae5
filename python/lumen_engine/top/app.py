"""The live view of `lumen top`: Textual's application around screen.py's text.

Threads: Textual's one. Errors: those of a look are shown, and the next is tried.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from lumen_engine.counters_file import CountersFileError, FoundServer, find
from lumen_engine.top import screen, units
from lumen_engine.top.view import View
from lumen_engine.top.watcher import Watcher

HELP = """\
lumen top: what a server does, live

 space   pause, and go on
 s  S    sort by the next column, by the one before
 r       the other way round
 /       show the models with a text in their name; Esc: all
 o       another server
 ↑ ↓     scroll; Page Up, Page Down
 ?       this help
 q       quit

 req/s   requests answered, failures too; beside it the last looks
 p50 …   from the first byte to the reply's last, of the last second
 queue   requests that wait for a worker
 rows    rows an inference: more than 1 where requests are batched
 hits    answered from the response cache, of those looked up
 stages  mean of a request: parse, queue, preprocess, inference, …
 threads busy: at work; spin: polls for work; park: sleeps
 throttled  time that the cgroup's CPU quota held threads back

 any key closes this"""


class Dialogue(ModalScreen[Path | None]):
    """Goes once, however many keys were pressed before it was gone."""

    _has_gone = False

    def leave(self, answer: Path | None = None) -> None:
        if not self._has_gone:
            self._has_gone = True
            self.dismiss(answer)


class HelpScreen(Dialogue):
    CSS = """
    HelpScreen { align: center middle; }
    HelpScreen Static { width: auto; height: auto; padding: 0 2; border: round $primary; }
    """

    def compose(self) -> ComposeResult:
        yield Static(Text(HELP))

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.leave()


class ChoiceScreen(Dialogue):
    """Which of several servers."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "leave", "leave")]
    CSS = """
    ChoiceScreen { align: center middle; }
    ChoiceScreen OptionList { width: 90%; height: auto; max-height: 80%; border: round $primary; }
    """

    def compose(self) -> ComposeResult:
        listed = OptionList(*(Option(_title(server), str(server.path)) for server in find()))
        listed.border_title = "which server? Enter takes it, Esc goes back"
        yield listed

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.leave(Path(str(event.option_id)))

    def action_leave(self) -> None:
        self.leave()


class TopApp(App[None]):
    """`path`: None lets the user choose; `follow`: goes on with a successor of the server."""

    TITLE = "lumen top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=False),
        Binding("space", "pause", "pause"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort back"),
        Binding("r", "reverse", "reverse"),
        # Before the next key is looked at, which is for another widget then. Also over a dialogue.
        Binding("slash", "filter", "filter", priority=True),
        Binding("escape", "all", "all", priority=True),
        Binding("o", "choose", "servers"),
        Binding("question_mark", "help", "help"),
    ]
    CSS = """
    #head, #warnings, #server, #foot { height: auto; width: 100%; }
    #head, #server, #foot, #models { text-wrap: nowrap; text-overflow: ellipsis; }
    #head { text-style: reverse; }
    #server { margin-bottom: 1; }
    #warnings { color: $text-error; text-style: bold; }
    #body { height: 1fr; scrollbar-size-vertical: 1; }
    #filter { dock: bottom; display: none; height: 1; border: none; padding: 0; }
    #foot { dock: bottom; color: $text-muted; }
    """

    def __init__(self, path: Path | None, *, hz: float = 2.0, follow: bool = False) -> None:
        super().__init__()
        self._hz = hz
        self._follow = follow
        self._watcher = Watcher(path, follow=follow) if path is not None else None
        self._view: View | None = None
        self._shown: dict[str, Text] = {}  # by widget
        self._is_paused = False
        self._has_widgets = False  # a resize may come before
        self.options = screen.Options(has_colour=not os.environ.get("NO_COLOR"))

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="server")
        yield Static(id="warnings")
        with VerticalScroll(id="body"):
            yield Static(id="models")
        yield Input(id="filter", placeholder="models with this in their name")
        yield Static(id="foot")

    def on_mount(self) -> None:
        self._has_widgets = True
        self.query_one("#body").focus()
        if self._watcher is None:
            self.action_choose()
        self.set_interval(1 / self._hz, self.look)
        self.look()

    def on_resize(self) -> None:
        self.call_after_refresh(self.show)  # once all know the new size

    def on_unmount(self) -> None:
        if self._watcher is not None:
            self._watcher.close()

    def look(self) -> None:
        """While paused too, so that the figures shown afterwards are of the last second."""
        if self._watcher is None:
            return
        view = self._watcher.look()
        if self._is_paused:
            return
        if view is not None:
            self._view = view
        self.show()

    def show(self) -> None:
        if not self._has_widgets or self._watcher is None:
            return
        width = self.size.width
        watcher, view = self._watcher, self._view
        self._put("#head", self._head(watcher, width))
        self._put("#foot", self._foot(width))
        warnings = list(view.warnings) if view else []
        warnings += [text for text in (watcher.note(), watcher.trouble) if text]
        self._put("#warnings", Text("\n".join(warnings)))
        if view is None:
            self._put("#models", Text("the first look…"))
            return
        self.options.rates = watcher.rates
        body = self.query_one("#body", VerticalScroll)
        self._put("#server", screen.server_text(view.server, width))
        text = screen.body_text(view, self.options, body.scrollable_content_region.width or width)
        self._put("#models", text)

    def _put(self, place: str, text: Text) -> None:
        """Only changed parts, and a new layout only for another number of lines: at 10 Hz the
        layout would be most of our cost.
        """
        old = self._shown.get(place)
        if old == text:
            return
        lines = text.plain.count("\n") + bool(text.plain)
        is_layout = old is None or lines != old.plain.count("\n") + bool(old.plain)
        self._shown[place] = text
        widget = self.query_one(place, Static)
        widget.display = bool(text.plain)
        # A warning may be wrapped into more lines than it has.
        widget.update(text, layout=is_layout or place == "#warnings")

    def _head(self, watcher: Watcher, width: int) -> Text:
        layout = watcher.counters.layout
        state = f"up {units.age(watcher.uptime_s())}" if watcher.is_alive() else "DEAD"
        left = f" lumen {layout.pid}  {layout.lumen_version}  {state}"
        right = f"{'PAUSED' if self._is_paused else f'{self._hz:g} Hz'} "
        text = Text(left.ljust(max(width - len(right), 0)) + right, no_wrap=True)
        text.truncate(width)
        return text

    def _foot(self, width: int) -> Text:
        keys = "q quit  space pause  s sort  r reverse  / filter  o servers  ? help"
        if self.options.filter:
            keys = f"filter: {self.options.filter} (Esc: all)  " + keys
        text = Text(keys, no_wrap=True)
        text.truncate(width)
        return text

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self.show()

    def action_sort(self, step: int) -> None:
        self.options.sort = (self.options.sort + step) % len(screen.COLUMNS)
        self.show()

    def action_reverse(self) -> None:
        self.options.is_reversed = not self.options.is_reversed
        self.show()

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_filter(self) -> None:
        if isinstance(self.screen, Dialogue):
            return
        entry = self.query_one("#filter", Input)
        if entry.has_focus:
            entry.insert_text_at_cursor("/")
        entry.display = True
        self.query_one("#foot").display = False
        # At once: entry.focus() comes after the keys that are typed meanwhile.
        self.screen.set_focus(entry)

    def action_all(self) -> None:
        if isinstance(self.screen, Dialogue):
            self.screen.leave()
            return
        self.query_one("#filter", Input).value = ""
        self._leave_filter()

    def action_choose(self) -> None:
        self.push_screen(ChoiceScreen(), self._chosen)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.options.filter = event.value
        self.show()

    def on_input_submitted(self) -> None:
        self._leave_filter()

    def _leave_filter(self) -> None:
        self.query_one("#filter").display = False
        self.query_one("#foot").display = True
        self.screen.set_focus(self.query_one("#body"))
        self.show()

    def _chosen(self, path: Path | None) -> None:
        if path is None:
            if self._watcher is None:
                self.exit()
            return
        try:
            other = Watcher(path, follow=False)
        except CountersFileError as error:
            self.notify(str(error), severity="error")
            return
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = other
        self._view = None
        self.look()


def _title(server: FoundServer) -> Text:
    return Text(f"{server.pid:>8}  {'running' if server.is_alive else 'dead   '}  {server.path}")
