"""Builds the site of the documentation: the README and docs/, as HTML in .build/site/html.

MkDocs, in an environment of its own, looks at every link and anchor: one that leads nowhere is an
error. Files outside docs/ that pages link to go along. Errors: SystemExit with MkDocs's words.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import judge_programs

SITE = ROOT / ".build" / "site"
PAGES = SITE / "pages"
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")


def link_of(target: str, page: Path, place: Path) -> str:
    """A link of the file `page`, which is laid at `place`; its target is laid, too."""
    if "://" in target:
        return target
    file = (page.parent / target).resolve()
    if file.is_relative_to(ROOT / "docs"):
        there = PAGES / file.relative_to(ROOT / "docs")
    elif file == ROOT / "README.md":
        there = PAGES / "index.md"
    else:
        there = PAGES / "source" / file.relative_to(ROOT)
        if file.is_file():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, there)
    up = [".."] * len(place.parent.relative_to(PAGES).parts)
    return "/".join([*up, *there.relative_to(PAGES).parts])


def lay(page: Path, place: Path) -> None:
    text = LINK.sub(lambda found: link_of(found[1], page, place), page.read_text())
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def main() -> int:
    shutil.rmtree(SITE, ignore_errors=True)
    for file in sorted((ROOT / "docs").rglob("*")):
        place = PAGES / file.relative_to(ROOT / "docs")
        if file.suffix == ".md":
            lay(file, place)
        elif file.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    lay(ROOT / "README.md", PAGES / "index.md")
    mkdocs = judge_programs.environment("site") / "bin" / "mkdocs"
    words = [str(mkdocs), "build", "--quiet", "--strict", "-f", str(ROOT / "tools" / "mkdocs.yml")]
    if subprocess.run(words, stdin=subprocess.DEVNULL).returncode != 0:
        raise SystemExit("site: MkDocs has refused it (see above)")
    print(SITE / "html" / "index.html")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
