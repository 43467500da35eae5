"""The site of ./dev docs: built without a warning, and it loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(project_root: Path) -> None:
    words = [sys.executable, str(project_root / "tools" / "site.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    first = Path(done.stdout.strip())
    assert "Lumen serves small and medium models" in first.read_text()
    pages = {
        page.relative_to(first.parent).with_suffix(".md") for page in first.parent.rglob("*.html")
    }
    docs = project_root / "docs"
    wanted = {page.relative_to(docs) for page in docs.rglob("*.md")}
    # MkDocs makes the index of a folder of its README.
    wanted = {page.with_name("index.md") if page.name == "README.md" else page for page in wanted}
    assert not wanted - pages
    for page in first.parent.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img)\b[^>]*\b(?:src|href)=\"([^\"]*)\"", page.read_text()
        )
        outside = [link for link in loaded if re.match(r"(https?:)?//", link)]
        assert not outside, (page, outside)
