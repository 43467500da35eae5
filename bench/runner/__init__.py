"""The parts that all benches share: declaration, rounds, rows, verdicts, tables, kept figures."""

from bench.runner.declare import Bench, Goal, Option, Part
from bench.runner.places import BINARY, BUILD, ROOT
from bench.runner.rows import Row, make_row
from bench.runner.run import BenchError, Run

__all__ = [
    "BINARY",
    "BUILD",
    "ROOT",
    "Bench",
    "BenchError",
    "Goal",
    "Option",
    "Part",
    "Row",
    "Run",
    "make_row",
]
