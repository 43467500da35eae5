#!/usr/bin/env python3
"""The rules of the house that a compiler doesn't check. `tools/tidy.py [--root DIR] [--rule NAME]`.

Reads tools/layers.toml and the files that git knows. Prints `path:line: rule: message` for each
finding and exits with 1 if there is any. Standard library only; a second or two for the tree.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import tidy_atomics
import tidy_cpp
import tidy_english

MEMORY_MODEL = "docs/memory-model.md"
CPP = (".h", ".cc")


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


@dataclass
class Tree:
    """The files of the project, read once."""

    root: Path
    rules: dict
    texts: dict[str, str] = field(default_factory=dict)

    def cpp(self, *folders: str) -> Iterable[tuple[str, str]]:
        for path, text in self.texts.items():
            if path.endswith(CPP) and path.startswith(tuple(f"{name}/" for name in folders)):
                yield path, text


def list_files(root: Path) -> list[str]:
    """The files that git knows, new ones included, ignored ones not; without git, every file."""
    words = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    inside = (root / ".git").exists()
    listed = subprocess.run(words, capture_output=True, text=True) if inside else None
    if listed is not None and listed.returncode == 0:
        names = set(listed.stdout.split("\0"))
    else:
        names = {str(path.relative_to(root)) for path in root.rglob("*")}
    return sorted(name for name in names if name and (root / name).is_file())


def read_tree(root: Path) -> Tree:
    own = root / "tools" / "layers.toml"
    default = Path(__file__).resolve().parent / "layers.toml"
    tree = Tree(root, tomllib.loads((own if own.exists() else default).read_text()))
    for name in list_files(root):
        if name.startswith(tuple(f"{folder}/" for folder in tree.rules.get("foreign", []))):
            continue
        try:
            tree.texts[name] = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a model, an image: no text, no rules
    return tree


def matches(path: str, patterns: list[str]) -> bool:
    """Globs where `**/` also stands for no folder at all."""
    expanded = [*patterns, *(pattern.replace("**/", "") for pattern in patterns)]
    return any(fnmatch.fnmatch(path, pattern) for pattern in expanded)


def folders_of(name: str, module: dict) -> list[str]:
    return module.get("folders", [f"src/{name}"])


def face_of(name: str, module: dict) -> str:
    """src/transports/http has its face in include/lumen/transports/http."""
    return f"include/lumen/{folders_of(name, module)[0].partition('/')[2]}"


def module_of(path: str, modules: dict) -> str | None:
    """The module whose folder holds it: the deepest, since apps/doctor is none of apps."""
    folders = {
        folder: name
        for name, module in modules.items()
        for folder in (face_of(name, module), *folders_of(name, module))
    }
    holding = [folder for folder in folders if path.startswith(f"{folder}/")]
    return folders[max(holding, key=len)] if holding else None


def check_layers(tree: Tree) -> Iterable[Finding]:
    """An include points down, to the faces of the modules that its own lists."""
    modules = tree.rules["modules"]
    for name, module in modules.items():
        for used in module["uses"]:
            if modules[used]["floor"] > module["floor"]:
                message = f"{name} (floor {module['floor']}) may not list {used}, which is above it"
                yield Finding("tools/layers.toml", 1, "layers", message)
    seen: dict[str, set[str]] = {name: set() for name in modules}
    shown: dict[str, set[str]] = {name: set() for name in modules}  # by its face
    for path, text in tree.cpp("include", "src", "apps", "examples"):
        module = module_of(path, modules)
        for line, included in tidy_cpp.includes(text):
            problem = include_problem(tree, path, included)
            if problem:
                yield Finding(path, line, "layers", problem)
            target = target_of(tree, included)
            if module and target:
                (shown if path.startswith("include/") else seen)[module].add(target)
    if "tools/layers.toml" in tree.texts:
        yield from needless_grants(modules, seen, shown)


def target_of(tree: Tree, included: str) -> str | None:
    """The module that an include names; None: the tree has no such header."""
    places = (f"include/{included}", f"src/{included}", f"apps/{included}")
    known = next((place for place in places if place in tree.texts), None)
    return module_of(known, tree.rules["modules"]) if known else None


def needless_grants(modules: dict, seen: dict, shown: dict) -> Iterable[Finding]:
    """A module needs the modules that its files include and that the faces of those show."""
    for name, module in modules.items():
        needed: set[str] = set()
        todo = [*seen[name], *shown[name]]
        while todo:
            one = todo.pop()
            if one not in needed:
                needed.add(one)
                todo += shown[one]
        for used in sorted(set(module["uses"]) - needed):
            yield Finding("tools/layers.toml", 1, "layers", f"{name} does not need {used}")


def include_problem(tree: Tree, path: str, included: str) -> str | None:
    modules = tree.rules["modules"]
    module = module_of(path, modules)
    for pattern, allowed in tree.rules["outside"].items():
        if fnmatch.fnmatch(included, pattern) and path not in allowed:
            return f"only {', '.join(allowed)} includes {included}"
    if ".." in included.split("/"):
        return f"{included} goes round the roots of the modules"
    if module is None and path.startswith(("include/", "src/")):
        return "stands in no module that tools/layers.toml names"
    target = target_of(tree, included)
    if included.startswith("lumen/"):
        target = target or module_of(f"include/{included}", modules)
    if target in modules and target != module:
        private = not included.startswith("lumen/")
        if private and (module is None or f"src/{included}" in tree.texts):
            return f"{included} is private to the module {target}"
        if module and target not in modules[module]["uses"]:
            return f"{module} may not use {target} ({included})"
    elif target == module and path.startswith("include/") and not included.startswith("lumen/"):
        return f"a face may not include the private {included}"
    for pattern in tree.rules.get("banned_includes", {}).get(module, []):
        if fnmatch.fnmatch(included, pattern):
            return f"{module} may not include {included}"
    return None


def check_size(tree: Tree) -> Iterable[Finding]:
    """A file fits in 600 lines, a function on a screen of 70."""
    limits = tree.rules["limits"]
    for path, text in tree.texts.items():
        python = is_python(path, text)
        if not (python or path.endswith(CPP)):
            continue
        lines = text.count("\n")
        if lines > limits["file_lines"]:
            yield Finding(path, 1, "size", f"{lines} lines, at most {limits['file_lines']}")
        for block in python_functions(text) if python else tidy_cpp.functions(text):
            length = block.last_line - block.first_line + 1
            if length > limits["function_lines"]:
                message = f"function of {length} lines, at most {limits['function_lines']}"
                yield Finding(path, block.first_line, "size", message)


def is_python(path: str, text: str) -> bool:
    return path.endswith(".py") or text.startswith("#!/usr/bin/env python3")


def python_functions(text: str) -> list[tidy_cpp.Block]:
    try:
        parsed = ast.parse(text)
    except SyntaxError:
        return []  # ruff says it better
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(parsed) if isinstance(node, kinds)]
    return [tidy_cpp.Block(node.lineno, node.end_lineno or node.lineno) for node in nodes]


def check_opening(tree: Tree) -> Iterable[Finding]:
    """A file opens with its purpose, its threads, its memory and its errors."""
    wanted = tree.rules["limits"]["opening_comment_lines"]
    for path, text in tree.texts.items():
        if path.endswith(CPP):
            lines = text.splitlines()
            opening = next(
                (i for i, line in enumerate(lines) if not line.startswith("//")), len(lines)
            )
            if opening < wanted:
                yield Finding(
                    path, 1, "opening", f"opens with {opening} comment lines, wanted {wanted}"
                )
            if path.endswith(".h") and "#pragma once" not in text:
                yield Finding(path, 1, "opening", "a header needs #pragma once")
        elif is_python(path, text) and text.strip():
            body = re.sub(r"\A#![^\n]*\n", "", text)
            if not body.startswith(('"""', "#")):
                yield Finding(path, 1, "opening", "a script opens with a docstring or a comment")


def check_own_header(tree: Tree) -> Iterable[Finding]:
    """A source includes the header of its name first, so that it shows that this needs no other:
    the build compiles only the other headers alone."""
    for path, text in tree.texts.items():
        folder, _, name = path.removeprefix("src/").rpartition("/")
        header = f"lumen/{folder}/{name.removesuffix('.cc')}.h"
        beside = path.removesuffix(".cc") + ".h"
        if not path.startswith("src/") or f"include/{header}" not in tree.texts:
            continue
        includes = tidy_cpp.INCLUDE.findall(text)
        if beside not in tree.texts and includes[:1] != [header]:
            yield Finding(path, 1, "includes", f"the first include is to be <{header}>")


def check_banned(tree: Tree) -> Iterable[Finding]:
    """Calls and words that layers.toml bans, each with its reason."""
    reach = tree.rules["limits"]["comment_reach_lines"]
    for ban in tree.rules["banned"]:
        pattern = re.compile(ban["pattern"])
        for path, text in tree.texts.items():
            if not matches(path, ban["where"]) or matches(path, ban.get("except", [])):
                continue
            code = path.endswith(CPP) and not ban.get("raw")
            searched = tidy_cpp.statements_only(text) if code else text
            lines = text.splitlines()
            for match in pattern.finditer(searched):
                line = tidy_cpp.line_at(searched, match.start())
                if "escape" in ban and ban["escape"] in comment_near(path, lines, line, reach):
                    continue
                yield Finding(
                    path, line, f"banned/{ban['name']}", f"{match.group(0).strip()!r}: {ban['why']}"
                )


def comment_near(path: str, lines: list[str], number: int, reach: int) -> str:
    if path.endswith(".py"):
        lines = [line.replace("#", "//", 1) for line in lines]
    return tidy_cpp.comments_near(lines, number, reach)


def check_atomics(tree: Tree) -> Iterable[Finding]:
    """Every order is named and argued; every sync label has both sides and stands in the doc."""
    sites: dict[str, list[tidy_atomics.Site]] = {}
    texts = dict(tree.cpp("include", "src"))
    reach = tree.rules["limits"]["comment_reach_lines"]
    names = set().union(*(tidy_atomics.declared_names(text) for text in texts.values()))
    problems: list[tidy_atomics.Problem] = []
    for path, text in texts.items():
        problems += tidy_atomics.check_file(path, text, reach, sites)
        problems += tidy_atomics.unnamed_orders(path, text, names)
    problems += tidy_atomics.one_sided(sites)
    problems += tidy_atomics.compare_with_doc(MEMORY_MODEL, tree.texts.get(MEMORY_MODEL), sites)
    for problem in problems:
        yield Finding(problem.path, problem.line, "atomics", problem.message)


def check_english(tree: Tree) -> Iterable[Finding]:
    """Comments name things; one clause as a noun may stand in a short file."""
    most = tree.rules["limits"]["clauses_in_1000_words"]
    for language in (CPP, (".py",)):
        words = clauses = 0
        for path, text in tree.texts.items():
            if not path.endswith(language):
                continue
            found = tidy_english.count(path, text)
            words += found.words
            clauses += found.clauses
            if found.clauses > 1 and found.in_1000() > most:
                message = (
                    f"{found.clauses} of what, who, whom, whoever, whatever in {found.words} words"
                    f" of comments, at most {most} in 1,000: name the thing"
                )
                yield Finding(path, found.first_line, "english", message)
        if words and 1000 * clauses / words > most:
            message = f"{clauses} clauses as nouns in {words} words of comments"
            yield Finding(".", 1, "english", message)


def check_comment_width(tree: Tree) -> Iterable[Finding]:
    """Prose in comments of C++ keeps to the columns of the code; clang-format leaves comments."""
    most = tree.rules["limits"]["comment_columns"]
    for path, text in tree.texts.items():
        if not path.endswith(CPP):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > most and tidy_english.is_prose(line):
                yield Finding(path, number, "width", f"{len(line)} columns, at most {most}")


def check_root(tree: Tree) -> Iterable[Finding]:
    """The root stays a page that one can take in."""
    entries = sorted({path.split("/")[0] for path in tree.texts} - {""})
    shown = [name for name in entries if not name.startswith(".")]
    most = tree.rules["limits"]["root_entries"]
    if len(shown) > most:
        yield Finding(
            ".", 1, "root", f"{len(shown)} entries at the root, at most {most}: {' '.join(shown)}"
        )


RULES: dict[str, Callable[[Tree], Iterable[Finding]]] = {
    "layers": check_layers,
    "size": check_size,
    "opening": check_opening,
    "includes": check_own_header,
    "banned": check_banned,
    "atomics": check_atomics,
    "root": check_root,
    "english": check_english,
    "width": check_comment_width,
}


def findings(root: Path, only: str | None = None) -> list[Finding]:
    tree = read_tree(root)
    chosen = [RULES[only]] if only else RULES.values()
    return sorted({finding for rule in chosen for finding in rule(tree)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--rule", choices=sorted(RULES))
    arguments = parser.parse_args()
    found = findings(arguments.root.resolve(), arguments.rule)
    for finding in found:
        print(finding)
    print(f"tidy: {len(found)} findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
