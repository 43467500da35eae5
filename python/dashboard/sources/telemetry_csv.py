"""A block of a telemetry CSV becomes a frame of small columns (docs/formats/telemetry-csv.md).

Pure: bytes in, a frame out; any thread. Errors: SourceError for a header that is no telemetry
CSV's; lines that can't be read are left out, counted, and the first is told.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass

import polars as pl

from .errors import SourceError

STAGES = ("connect", "parse", "queue", "preprocess", "inference", "postprocess", "write", "total")
REQUIRED = ("timestamp", "model", "queue_type", "allocator_type", "total_us", "status")
# The client of `lumen matrix` calls its requests before the measurement so.
WARM_UP_ID = "warm-up"
# Of each combination of a run the slowest requests keep their ids; all ids of 10 M would take 400
# MB.
SLOWEST_KEPT = 20
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S%.6fZ"

# About 75 bytes a row, so that 10 M rows are 750 MB.
KINDS: dict[str, pl.DataType] = {
    "model": pl.Categorical(),
    "queue_type": pl.Categorical(),
    "allocator_type": pl.Categorical(),
    "worker": pl.Int32(),
    **{f"{stage}_us": pl.Float32() for stage in STAGES},
    "rows": pl.UInt32(),
    "status": pl.UInt16(),
    "cache": pl.Categorical(),
    "transport": pl.Categorical(),
    "lane": pl.Categorical(),
}
COMBINATION = ("model", "queue_type", "allocator_type", "status")
SLOWEST_COLUMNS = (
    *("request_id", "time", *COMBINATION, "lane", "worker", "rows", "cache", "transport"),
)


@dataclass(frozen=True)
class Header:
    """The columns in the file's order, and where its first record begins."""

    columns: tuple[str, ...]
    length: int


@dataclass(frozen=True)
class Block:
    frame: pl.DataFrame
    slowest: pl.DataFrame  # with the ids
    unreadable: int  # lines
    first_unreadable: str


def read_header(begin: bytes, where: str) -> Header:
    """Of the file's first bytes, which hold a whole line."""
    end = begin.find(b"\n") + 1
    try:
        names = next(csv.reader([begin[:end].decode("utf-8")]), [])
    except (UnicodeDecodeError, csv.Error):
        names = []
    names = [name.strip() for name in names]
    missing = [name for name in REQUIRED if name not in names]
    if missing or len(set(names)) != len(names):
        shown = begin[: min(end or 60, 60)].decode("utf-8", "replace").strip()
        raise SourceError(
            where,
            "is no telemetry CSV",
            f"a first line that begins with {shown!r}",
            f"column names with {', '.join(missing or REQUIRED)}",
            "name a file that `telemetry_csv_path` made",
        )
    return Header(tuple(names), end)


def end_of_records(data: bytes) -> int:
    """How many bytes are whole records. A line feed inside quotes ends none."""
    end = data.rfind(b"\n") + 1
    if end == 0:
        return 0
    quotes = data.count(b'"', 0, end)
    while quotes % 2 == 1:
        before = data.rfind(b"\n", 0, end - 1) + 1
        if before == 0:
            return 0
        quotes -= data.count(b'"', before, end)
        end = before
    return end


def parse_block(data: bytes, header: Header) -> Block:
    """`data` is whole records."""
    try:
        raw = _read(data, header, KINDS)
        frame = _typed(raw, strict=True)
        if not _unreadable(frame).any():
            return _block(frame, 0, "")
    except pl.exceptions.PolarsError:
        pass  # some line is not as it should be: read again, each value by itself
    return _parse_leniently(data, header)


def _parse_leniently(data: bytes, header: Header) -> Block:
    text = data.decode("utf-8", "replace").encode()
    try:
        raw = _read(text, header, {})
    except pl.exceptions.PolarsError as error:
        lines = data.count(b"\n")
        return Block(_typed(_read(b"", header, {}), False), _no_slowest(), lines, str(error)[:120])
    frame = _typed(raw, strict=False)
    bad = _unreadable(frame)
    count = int(bad.sum())
    first = ""
    if count:
        row = raw.filter(bad).row(0)
        first = ",".join("" if value is None else str(value) for value in row)[:120]
    return _block(frame.filter(~bad), count, first)


def _no_slowest() -> pl.DataFrame:
    return _slowest(_typed(_read(b"", Header((*REQUIRED,), 0), {}), False))


def _read(data: bytes, header: Header, kinds: dict[str, pl.DataType]) -> pl.DataFrame:
    schema = {name: kinds.get(name, pl.String()) for name in header.columns}
    if not data:
        return pl.DataFrame(schema=schema)
    return pl.read_csv(data, has_header=False, schema=schema, truncate_ragged_lines=not kinds)


def _typed(raw: pl.DataFrame, strict: bool) -> pl.DataFrame:
    """All columns of KINDS, whichever the file has, and the time."""
    here = set(raw.columns)
    time = pl.col("timestamp").str.to_datetime(TIME_FORMAT, time_unit="us", strict=strict)
    ids = pl.col("request_id") if "request_id" in here else pl.lit("")
    columns = [ids.fill_null("").alias("request_id"), time.alias("time")]
    for name, kind in KINDS.items():
        value = pl.col(name).cast(kind, strict=strict) if name in here else pl.lit(None, kind)
        columns.append(value.alias(name))
    return raw.select(columns).with_columns(
        (pl.col("request_id") == WARM_UP_ID).alias("warm_up"),
    )


def _unreadable(frame: pl.DataFrame) -> pl.Series:
    """A line needs its time, its combination, how long it took and its status."""
    needed = ("time", "model", "queue_type", "allocator_type", "total_us", "status")
    gone = pl.any_horizontal(pl.col(name).is_null() for name in needed)
    bad = gone | ~pl.col("total_us").is_finite() | (pl.col("total_us") < 0)
    return frame.select(bad.fill_null(True)).to_series()


def _slowest(frame: pl.DataFrame) -> pl.DataFrame:
    stages = [f"{stage}_us" for stage in STAGES]
    wanted = [*SLOWEST_COLUMNS, *stages, "warm_up"]
    return keep_slowest(frame.select(wanted))


def keep_slowest(frame: pl.DataFrame) -> pl.DataFrame:
    """The slowest of each combination."""
    if frame.height <= SLOWEST_KEPT:
        return frame
    # One row more than those above the limit costs nothing; ranking all rows would.
    limits = frame.group_by(COMBINATION).agg(
        pl.col("total_us").top_k(SLOWEST_KEPT).min().alias("limit")
    )
    found = frame.join(limits, on=list(COMBINATION), how="left", maintain_order="left")
    return found.filter(pl.col("total_us") >= pl.col("limit")).drop("limit")


def _block(frame: pl.DataFrame, unreadable: int, first: str) -> Block:
    return Block(frame.drop("request_id"), _slowest(frame), unreadable, first)
