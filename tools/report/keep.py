"""`./dev report --keep`: the run's results become the baselines in bench/baselines.

Only whole results: every part of a baseline measured and ok, with a row for every goal. A quick run
never takes the place of a baseline that is fresh. Threads: one. Errors: a baseline that is not kept
is named with the reason, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

import baselines
import figures
import keep_baseline

from report.page import together
from report.run import ABSENT, OK, Result


def is_due(name: str) -> bool:
    """Its baseline is older than its code, or not there."""
    if name not in baselines.benches():
        return False
    file = keep_baseline.BASELINES / f"{name}.json"
    if not file.exists():
        return True
    return not all(baselines.is_fresh(name, one) for one in baselines.measurements(file))


def reason_against(name: str, parts: Sequence[Result], is_quick: bool) -> str:
    """Why it is not kept; empty: it is."""
    missing = [part.bench.name for part in parts if part.status != OK]
    if all(part.status == ABSENT for part in parts):
        return "there is no such bench in this tree"
    if missing:
        return f"{', '.join(missing)} failed or was not measured"
    if name not in baselines.benches():
        return "bench/sources.toml does not name it"
    if is_quick and not all(part.bench.full_minutes for part in parts):
        return "a quick run has only a part of it"
    if is_quick and not is_due(name):
        return "the baseline is fresh, and a quick run would be worse"
    return ""


def keep(results: Sequence[Result], is_quick: bool) -> list[str]:
    """Says of each baseline whether it was kept, and why not."""
    said = []
    documents = together(results)
    for name in dict.fromkeys(result.bench.keeps for result in results):
        parts = [result for result in results if result.bench.keeps == name]
        if reason := reason_against(name, parts, is_quick):
            said.append(f"{name}: not kept, {reason}")
            continue
        try:
            day = max(part.began[:10] for part in parts)
            fresh = keep_baseline.measured(name, documents[name], day)
            if name not in figures.NO_METRICS:
                figures.check_goals_have_rows(name, documents[name]["rows"])
        except (ValueError, KeyError, TypeError, SystemExit) as error:
            said.append(f"{name}: not kept, the documents can't show it: {error}")
            continue
        keep_baseline.keep(name, fresh)
        said.append(f"{name}: kept")
    return said
