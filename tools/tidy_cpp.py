"""tidy.py's knowledge of C++ without a compiler: comments, strings, includes, functions.

Pure functions over text, no state. An approximation that is right for code in this project's
style; where it can't tell (a macro that opens a brace), it stays silent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

LEXEMES = re.compile(
    r"""//[^\n]*"""  # a line comment
    r"""|/\*.*?\*/"""  # a block comment
    r"""|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)\""""  # a raw string
    r"""|"(?:\\.|[^"\\\n])*\""""  # a string
    r"""|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",  # a character, not the separator of 1'000
    re.DOTALL | re.VERBOSE,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
SCOPE = re.compile(r'\b(class|struct|union|enum|namespace)\b[^()=]*$|\bextern\s*""\s*$')


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


@cache
def code_only(text: str) -> str:
    """The text with comments blanked out and strings emptied; every line keeps its number."""

    def replace(match: re.Match[str]) -> str:
        found = match.group(0)
        if found.startswith(("//", "/*")):
            return _blank(found)
        quote = found[-1]
        return quote + _blank(found[1:-1]) + quote if len(found) > 1 else found

    return LEXEMES.sub(replace, text)


def comments(text: str) -> list[tuple[int, str]]:
    """Line number and text of every comment."""
    return [
        (line_at(text, match.start()), match.group(0))
        for match in LEXEMES.finditer(text)
        if match.group(0).startswith(("//", "/*"))
    ]


def without_comments(text: str) -> str:
    """The program alone, with a blank for each gap: the same while only comments change."""

    def replace(match: re.Match[str]) -> str:
        found = match.group(0)
        return " " if found.startswith(("//", "/*")) else found

    return re.sub(r"\s+", " ", LEXEMES.sub(replace, text)).strip()


def statements_only(text: str) -> str:
    """code_only() without the preprocessor's lines: `#include <new>` allocates nothing."""
    return DIRECTIVE.sub(lambda match: _blank(match.group(0)), code_only(text))


def includes(text: str) -> list[tuple[int, str]]:
    """Line number and path of every include, of either form."""
    kept = re.sub(r"//[^\n]*", "", text)
    return [(line_at(kept, match.start()), match.group(1)) for match in INCLUDE.finditer(kept)]


def line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


@dataclass
class Block:
    first_line: int
    last_line: int


def functions(text: str) -> list[Block]:
    """Brace blocks that stand directly in a file, namespace or class, and aren't data."""
    code = statements_only(text)
    found: list[Block] = []
    open_blocks: list[tuple[bool, bool, int]] = []  # is a scope, is a function, first line
    header_start, line = 0, 1
    for offset, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            header = code[header_start:offset]
            stripped = re.sub(r"alignas\s*\([^)]*\)|\[\[[^\]]*\]\]", "", header)
            outside = all(scope for scope, _, _ in open_blocks)
            scope = outside and bool(SCOPE.search(re.sub(r'"\s*"', '""', stripped).rstrip()))
            data = header.rstrip().endswith(("=", ",", "(", "return"))
            first = line - header.lstrip().count("\n")
            open_blocks.append((scope, outside and not scope and not data, first))
            header_start = offset + 1
        elif char == "}":
            if open_blocks:
                _, is_function, first = open_blocks.pop()
                if is_function:
                    found.append(Block(first, line))
            header_start = offset + 1
        elif char == ";":
            header_start = offset + 1
    return found


def arguments_after(code: str, offset: int) -> str:
    """The text between the parenthesis at `offset` and the one that closes it."""
    depth = 0
    for end in range(offset, len(code)):
        depth += {"(": 1, ")": -1}.get(code[end], 0)
        if depth == 0:
            return code[offset + 1 : end]
    return code[offset + 1 :]


def comments_near(lines: list[str], number: int, reach: int) -> str:
    """The comments on line `number` (from 1) and up to `reach` lines above it.

    A comment block that reaches into that range counts whole, so that a long explanation may
    carry its label in its first line.
    """
    first = max(1, number - reach)
    while (
        first > 1
        and lines[first - 1].lstrip().startswith("//")
        and lines[first - 2].lstrip().startswith("//")
    ):
        first -= 1
    near = lines[first - 1 : number]
    return "\n".join(line[line.index("//") :] for line in near if "//" in line)
