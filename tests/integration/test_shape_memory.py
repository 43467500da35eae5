"""The memory that a server keeps for known shapes is bounded, by a setting of the model."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from integration.harness import FIXTURES, Server, copy_models
from integration.load import infer_bytes
from integration.raw_http import Connection

StartServer = Callable[..., Server]

# Widths of text lines, none twice: 2,000 of them in a soak, which sets the scale.
SHAPES = min(2000, 400 * int(os.environ.get("LUMEN_STRESS_SCALE", "1")))
# Over the second half of the shapes. With OpenVINO's own 5,000 entries it is 0.7 MB a shape, so
# 140 MB for 200; with the default some 10 MB, of buffers that grow with the widest line.
MAX_GROWTH_MB = 40


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth_mb(one: Server) -> float:
    """Of the second half of SHAPES requests."""
    widths = random.Random(7).sample(range(16, 16 + 2 * SHAPES), SHAPES)
    picture = np.linspace(0, 1, 16 * (16 + 2 * SHAPES), dtype=np.float32)
    middle = 0.0
    with Connection(one.address) as connection:
        for done, width in enumerate(widths):
            if done == SHAPES // 2:
                middle = resident_mb(one.pid)
            array = picture[: 16 * width].reshape(1, 1, 16, width)
            connection.send(infer_bytes("text_lines", "image", array))
            assert connection.reply().status == 200
    return resident_mb(one.pid) - middle


@pytest.mark.skipif(
    os.environ.get("LUMEN_PRESET") in ("asan", "tsan"),
    reason="a sanitizer keeps freed memory, and its own beside",
)
def test_ever_new_shapes_do_not_make_the_server_grow(server: StartServer, tmp_path: Path) -> None:
    bounded = copy_models(tmp_path / "bounded", [FIXTURES / "text_lines"])
    grown = growth_mb(server(repository=bounded))
    assert grown < MAX_GROWTH_MB


@pytest.mark.skipif(
    os.environ.get("LUMEN_PRESET") in ("asan", "tsan"), reason="as above: memory is measured"
)
def test_a_model_says_how_much_is_kept_for_its_shapes(server: StartServer, tmp_path: Path) -> None:
    wasteful = copy_models(tmp_path / "wasteful", [FIXTURES / "text_lines"])
    (wasteful / "text_lines" / "config.json").write_text(json.dumps({"shape_cache": 5000}))
    grown = growth_mb(server(repository=wasteful))
    # Its kernels stay: the other test would see the same if the bound did nothing.
    assert grown > MAX_GROWTH_MB
