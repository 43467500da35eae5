"""docs/tutorial.md, followed from its first line to its last in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from integration.http2_proxy import free_port

pytestmark = pytest.mark.alone  # `lumen top` takes the only server that runs


def test_each_command_of_the_tutorial_works_in_its_order(
    project_root: Path, lumen_binary: Path, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    text = (project_root / "docs" / "tutorial.md").read_text()
    text = text.replace("127.0.0.1:8000", address)
    text = text.replace("lumen serve ", f"lumen serve --http {address} ")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, (language, block) in enumerate(blocks):
        if language == "python":
            (tmp_path / f"{number}.py").write_text(block)
            block = f"{sys.executable} {number}.py\n"
        if block.startswith("lumen serve"):
            # A reader waits for the banner's last line.
            block = block.replace(" &\n", " > banner 2>&1 &\n")
            block += "until grep -q '^lumen: ready' banner; do kill -0 $!; sleep 0.05; done\n"
        script += [f"echo '=== {number}'", block]
    path = f"{lumen_binary.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert len(blocks) == 10
    assert re.search(r"^100% of 178 wines$", done.stdout, re.MULTILINE), done.stdout
    assert "model 'wine' has no input 'x'; wanted one of: X" in done.stdout
    assert "wine: version 2 is on disk, not loaded: lumen load wine" in done.stdout
    assert re.search(r"^queue_type +batched$", done.stdout, re.MULTILINE)
