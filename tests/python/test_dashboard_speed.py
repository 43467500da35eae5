"""How long large files take: CPU time, since other programs share the machine with the tests.

LUMEN_DASHBOARD_ROWS=10000000 takes ten times the rows, whose limit is 20 s and 3 GiB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from telemetry_writer import large_file

ROWS = int(os.environ.get("LUMEN_DASHBOARD_ROWS", "1000000"))
# Measured: 1.0 s a million rows to read, 0.06 s for a filter with its percentiles and throughput.
# Wanted are a first page in 3 s and a filter in 1 s, with a browser and two cores.
READ_S_A_MILLION = 3.0
FILTER_S_A_MILLION = 1.0
LIMIT_BYTES = 3 << 30

PROGRAM = """
import json, resource, sys, time
from pathlib import Path
from dashboard.selection import Choice, Memo, Selection, options
from dashboard.stats import groups
from dashboard.store import Store

def cpu(work):
    start = time.process_time(), time.monotonic()
    result = work()
    return result, time.process_time() - start[0], time.monotonic() - start[1]

content, read_cpu, read_wall = cpu(Store([Path(sys.argv[1])]).content)
choice = Choice(queue_type=("naive", "mpmc"), status=("200",))
chosen = Selection(content, choice, Memo())

def page():
    options(content, Memo())
    groups.loads(chosen.rows(*choice.split, *groups.LOAD_COLUMNS), choice.split)
    return groups.split_sorted(chosen.rows(*choice.split, "total_us"), choice.split, "total_us")

series, filter_cpu, filter_wall = cpu(page)
print(json.dumps({
    "rows": content.rows.height, "chosen": sum(len(each.values) for each in series),
    "read_cpu": read_cpu, "read_wall": read_wall,
    "filter_cpu": filter_cpu, "filter_wall": filter_wall,
    "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def test_a_large_file_is_read_and_filtered_in_time_and_memory(
    tmp_path: Path, project_root: Path
) -> None:
    path = large_file(tmp_path / "t.csv", ROWS)
    env = {**os.environ, "PYTHONPATH": str(project_root / "python")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(path)], env=env, capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    print(found)
    assert found["rows"] == ROWS
    assert found["chosen"] == ROWS * 2 // 5
    assert found["read_cpu"] < READ_S_A_MILLION * ROWS / 1e6
    assert found["filter_cpu"] < FILTER_S_A_MILLION * ROWS / 1e6
    assert found["bytes"] < LIMIT_BYTES
