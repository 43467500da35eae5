"""The server that is measured: alone with one model, in a session of its own, and always ended.

Threads: the main one, and the readers of lumen_engine.Server. Errors: PerfError with the server's
output, or with the models that there are.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lumen_engine.perf.programs import DieWithUs, Interrupts, PerfError, end_group
from lumen_engine.server import Server, ServerError

START_TIMEOUT_S = 120.0
# "  squeezenet/1  openvino  data FP32[...]": the banner's line of a model.
BACKEND = re.compile(r"^\s+(?P<model>[^/\s]+)/\d+\s+(?P<backend>\w+)\s")


def link_or_copy(source: str, target: str) -> str:
    """Weights may be large; the kernel refuses hard links to files that are not one's own."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def copy_model(repository: Path, model: str, target: Path) -> Path:
    """A repository with that model alone: others would be compiled and measured at each start."""
    folder = repository / model
    if not folder.is_dir():
        there = sorted(one.name for one in repository.iterdir()) if repository.is_dir() else []
        raise PerfError(
            f"no model {model!r} in {repository}: there are {', '.join(there) or 'none'} "
            "(--model, --model-repository; squeezenet is made by ./dev build)"
        )
    for version in folder.iterdir():
        if version.is_dir() and version.name.isdigit():
            shutil.copytree(version, target / model / version.name, copy_function=link_or_copy)
    if not (target / model).is_dir():
        raise PerfError(f"{folder} has no version (a folder named by a number); run ./dev build")
    if (folder / "config.json").is_file():
        shutil.copy2(folder / "config.json", target / model / "config.json")
    return target


@contextmanager
def one_model(repository: Path, model: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lumen-perf-") as folder:
        yield copy_model(repository, model, Path(folder))


@contextmanager
def serving(
    repository: Path,
    arguments: Sequence[str],
    interrupts: Interrupts,
    *,
    under: Sequence[str] = (),
    executable: Path | None = None,
    env: dict[str, str] | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> Iterator[Server]:
    """`under` are words in front of the server's own: valgrind and its options."""
    with ExitStack() as stack:
        try:
            server = Server(
                repository,
                arguments,
                executable=executable,
                under=under,
                env=env,
                start_timeout_s=start_timeout_s,
                held=interrupts.held(),
                start_new_session=True,
                preexec_fn=DieWithUs(),
            )
        except ServerError as error:
            raise PerfError(str(error)) from error
        stack.callback(_end_held, server, interrupts)
        yield server


def _end_held(server: Server, interrupts: Interrupts) -> None:
    with interrupts.held():
        end_group(server.process, signal.SIGINT)


def backend_of(server: Server, model: str) -> str | None:
    for line in server.banner:
        found = BACKEND.match(line)
        if found is not None and found["model"] == model:
            return found["backend"]
    return None
