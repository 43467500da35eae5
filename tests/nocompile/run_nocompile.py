#!/usr/bin/env python3
"""Misuses that must not compile: `run_nocompile.py misuses FILE.cc -- COMPILER FLAGS...`, and
`run_nocompile.py includes COMPILE_COMMANDS.json`. CTest runs both.

misuses: FILE.cc has misuses in `#ifdef WRONG`, each on a line that ends in `// error: WORDS` (a
regular expression), and the right use beside them in `#else`. Compiled as it is it has no error;
with WRONG defined, each such line has an error with its words, and no other line has one.
includes: each module finds the faces of those that tools/layers.toml lets it use, and no other, and
no private header but its own; asked of the compiler with the flags that the build has for it.
Exit 0: all as it must be.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = re.compile(
    r"In (file|instantiation|member|substitution|function)|required (from|by)|"
    r"in .constexpr. expansion|^ "
)


def compile_text(words: list[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=300)


# --- misuses --------------------------------------------------------------------------------------


def blocks_of(output: str) -> list[str]:
    """An error with the compiler's lines around it: where it was instantiated, its notes."""
    blocks: list[list[str]] = [[]]
    context: list[str] = []
    for line in output.splitlines():
        if ": error: " in line or ": fatal error: " in line:
            blocks.append([*context, line])
            context = []
        elif CONTEXT.search(line) and not line.startswith(" "):
            context.append(line)
        else:
            blocks[-1] += [*context, line]
            context = []
    return ["\n".join(block) for block in blocks[1:]]


def error_of(block: str) -> str:
    return next(line for line in block.splitlines() if "error: " in line)


def check_misuses(source: Path, command: list[str]) -> list[str]:
    # clang stops after 20 errors; gcc, which has no such word, doesn't.
    no_limit = ["-ferror-limit=0"] if "clang" in command[0] else []
    checks = ["-fsyntax-only", "-Wno-unused", "-Werror=unused-result"]
    words = [*command, *checks, *no_limit, str(source)]
    right = compile_text(words)
    if right.returncode != 0:
        return [f"what is right does not compile:\n{right.stderr}"]
    lines = source.read_text().splitlines()
    wanted = {
        number: line.split("// error: ", 1)[1].strip()
        for number, line in enumerate(lines, 1)
        if "// error: " in line
    }
    if not wanted:
        return ["no line ends in `// error: WORDS`"]
    blocks = blocks_of(compile_text([*words, "-DWRONG"]).stderr)
    problems = []
    known: set[str] = set()
    for number, pattern in wanted.items():
        own = [block for block in blocks if f"{source}:{number}:" in block]
        fitting = [block for block in own if re.search(pattern, block)]
        if not fitting:
            said = "\n".join(own) or "nothing"
            problems.append(f"{source.name}:{number}: wanted an error with {pattern!r}: {said}")
        known.update(own)
    # Errors inside of a header, which follow from a misuse, are none of this file's.
    elsewhere = [
        block for block in blocks if block not in known and f"{source}:" in error_of(block)
    ]
    problems += [f"an error that no line asks for:\n{block}" for block in elsewhere]
    print(f"{source.name}: {len(wanted)} misuses, {len(problems)} problems")
    return problems


# --- includes -------------------------------------------------------------------------------------


def header_of(folder: Path, below: Path) -> str | None:
    found = sorted(folder.glob("*.h"))
    return str(found[0].relative_to(below)) if found else None


class Layers:
    def __init__(self) -> None:
        self.modules = tomllib.loads((ROOT / "tools" / "layers.toml").read_text())["modules"]
        self.faces: dict[str, str] = {}  # how others include it
        self.private: dict[str, str] = {}
        for name in self.modules:
            own = None
            for folder in self.folders(name):
                own = own or header_of(ROOT / folder, ROOT / folder.split("/")[0])
            face = header_of(ROOT / "include" / "lumen" / self.below(name), ROOT / "include")
            if face:
                self.faces[name] = face
                if own:
                    self.private[name] = own
            elif own:
                self.faces[name] = own

    def folders(self, name: str) -> list[str]:
        return self.modules[name].get("folders", [f"src/{name}"])

    def below(self, name: str) -> str:
        """Where its face stands: src/transports/http has it in include/lumen/transports/http."""
        return self.folders(name)[0].partition("/")[2]

    def questions(self, name: str, is_face: bool) -> dict[str, bool]:
        """Each header, and whether a file of this module may find it."""
        may = {name, *self.modules[name]["uses"]}
        asked = {face: module in may for module, face in self.faces.items() if module != "apps"}
        own = {} if is_face else {name}
        return asked | {header: module in own for module, header in self.private.items()}


def flags_of(entry: dict[str, str]) -> list[str]:
    words = shlex.split(entry["command"])
    kept = [word for word in words if word.startswith(("-I", "-D", "-std="))]
    compiler = next(word for word in words if re.search(r"(\+\+|cc)(-\d+)?$", word))
    return [compiler, *kept]


def found_headers(command: list[str], headers: Iterable[str]) -> set[str]:
    text = "".join(f"#if __has_include(<{one}>)\n{one}\n#endif\n" for one in headers)
    done = compile_text([*command, "-E", "-P", "-xc++", "-"], text)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return set(done.stdout.split())


def check_includes(commands: Path) -> list[str]:
    layers = Layers()
    problems = []
    asked = 0
    found: dict[tuple[str, bool], list[str]] = {}
    for entry in json.loads(commands.read_text()):
        if face := re.search(r"/headers/lumen/(.+?)(?:/detail)?/[^/]+$", entry["file"]):
            of = next(name for name in layers.modules if layers.below(name) == face.group(1))
            found[of, True] = flags_of(entry)
            continue
        for name in layers.modules:
            for folder in layers.folders(name):
                # apps/ holds sources of its own beside the folders of another module.
                if str(Path(entry["file"]).parent) == str(ROOT / folder):
                    found.setdefault((name, False), flags_of(entry))
    for (name, is_face), command in found.items():
        what = "a face" if is_face else "a source"
        questions = layers.questions(name, is_face)
        included = found_headers(command, questions)
        asked += len(questions)
        for header, may in questions.items():
            if (header in included) != may:
                said = "can't include" if may else "can include"
                problems.append(f"{what} of {name} {said} {header}")
    missing = {name for name in layers.faces if name != "apps"} - {name for name, _ in found}
    problems += [f"{name} is not built" for name in sorted(missing)]
    print(f"{len(found)} kinds of files, {asked} includes, {len(problems)} problems")
    return problems


def main() -> int:
    match sys.argv[1:]:
        case ["misuses", source, "--", *command]:
            problems = check_misuses(Path(source), command)
        case ["includes", commands]:
            problems = check_includes(Path(commands))
        case _:
            sys.exit(__doc__)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
