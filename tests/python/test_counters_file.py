"""Readers of the counters file: sums, histograms, models that come and go, files that are none."""

from __future__ import annotations

import os
import random
import resource
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from lumen_engine import counters_file
from lumen_engine._counters_histogram import bucket_of as reader_bucket_of
from lumen_engine._counters_histogram import lowests, middles
from lumen_engine.counters_file import CountersFile, CountersFileError, Histogram
from python.counters_file_writer import (
    BUCKETS,
    NONE,
    STAGES,
    WINDOW_NS,
    CountersFileWriter,
    bucket_of,
)

Make = Callable[..., CountersFileWriter]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[CountersFileWriter] = []

    def one(name: str = "lumen.counters", **options: int) -> CountersFileWriter:
        made.append(CountersFileWriter(tmp_path / name, **options))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for writer in made:
        try:
            writer.close()
        except OSError:
            pass  # the test has closed it


def test_totals_are_sums_over_the_writers_that_were_ever_used(make: Make) -> None:
    file = make()
    file.model(3, "mlp", "2", generation=7)
    for writer in (0, 1, 11):
        file.writer(writer, state=1 if writer else 2)
        file.server_slot(writer, "requests", 10 + writer)
        file.model_slot(3, writer, "success", 100 + writer)
        file.model_slot(3, writer, "last_inference", 1000 + writer)
    file.server_slot(5, "requests", 1_000_000)  # of state 0: not read
    with CountersFile(file.path) as counters:
        now = counters.snapshot()
    assert now.server["requests"] == 10 + 11 + 21
    (model,) = now.models
    assert (model.index, model.name, model.version, model.generation) == (3, "mlp", "2", 7)
    assert model.counters["success"] == 312
    assert model.counters["last_inference"] == 1011
    assert "thread_state" not in now.server, "what is of one thread has no sum"


def test_a_gauge_may_be_below_zero_in_one_slot_and_never_in_all(make: Make) -> None:
    file = make()
    for writer, value in enumerate((5, -3)):
        file.writer(writer)
        file.server_slot(writer, "connections_open", value)
    with CountersFile(file.path) as counters:
        assert counters.snapshot().server["connections_open"] == 2
        file.server_slot(0, "connections_open", 1)
        assert counters.snapshot().server["connections_open"] == 0


def test_counters_wrap_around(make: Make) -> None:
    file = make()
    for writer, value in enumerate((NONE, 3)):
        file.writer(writer)
        file.server_slot(writer, "requests", value)
    with CountersFile(file.path) as counters:
        assert counters.snapshot().server["requests"] == 2


def test_a_running_spell_is_added_while_the_server_lives(make: Make) -> None:
    file = make()
    file.writer(0, role=1, number=4, tid=77)
    since = time.monotonic_ns() - 5_000_000_000
    for name, value in (("busy_ns", 10), ("spin_ns", 20), ("park_ns", 30)):
        file.server_slot(0, name, value)
    file.server_slot(0, "thread_state", 2)
    file.server_slot(0, "thread_since_ns", since)
    with CountersFile(file.path) as counters:
        now = counters.snapshot()
        (writer,) = now.writers
        assert (writer.role, writer.number, writer.tid, writer.is_taken) == (1, 4, 77, True)
        assert (writer.busy_ns, writer.spin_ns, writer.doing) == (10, 20, 2)
        assert writer.park_ns == 30 + now.monotonic_ns - since
        file.close()
        (writer,) = counters.snapshot().writers
        assert writer.park_ns == 30, "a dead server's threads are in no spell"


def test_a_writer_that_counts_anything_has_made_progress(make: Make) -> None:
    file = make()
    file.model(2, "mlp")
    for writer in (0, 1):
        file.writer(writer)
    with CountersFile(file.path) as counters:
        before = [writer.progress for writer in counters.snapshot().writers]
        file.model_slot(2, 1, "execution", 1)
        after = [writer.progress for writer in counters.snapshot().writers]
    assert after[0] == before[0] and after[1] != before[1]


def test_buckets_are_those_of_the_page() -> None:
    low, mid = lowests(6, 40), middles(6, 40)
    assert len(low) == BUCKETS
    for value in (0, 1, 63, 64, 127, 128, 129, 1000, 123_456_789, (1 << 40) - 1, 1 << 50):
        bucket = bucket_of(value)
        assert reader_bucket_of(value, 6, 40) == bucket
        assert int(low[bucket]) <= value
        if bucket + 1 < BUCKETS:
            assert value < int(low[bucket + 1])
            assert int(low[bucket]) <= int(mid[bucket]) < int(low[bucket + 1])


def test_percentiles_of_all_shards_are_within_a_bucket_of_the_exact_ones(make: Make) -> None:
    file = make(shards=3)
    file.model(0, "mlp")
    chance = random.Random(14)
    values = [int(chance.lognormvariate(11, 1)) for _ in range(3000)]
    for i, value in enumerate(values):
        file.record(0, "total", value, shard=i % 3)
    with CountersFile(file.path) as counters:
        total = counters.snapshot().models[0].stages["total"]
    values.sort()
    assert (total.count, total.sum) == (len(values), sum(values))
    assert (total.least, total.most) == (values[0], values[-1])
    for percent in (0, 1, 50, 90, 99, 99.9, 100):
        exact = values[max(1, -(-int(percent * 10) * len(values) // 1000)) - 1]
        assert abs(total.percentile(percent) - exact) <= exact * 0.008 + 1
    assert total.percentile(100) <= values[-1]


def test_the_p999_of_ten_million_samples_is_within_one_percent_of_the_exact_one() -> None:
    chance = np.random.default_rng(14)
    values = chance.lognormal(11, 1, 10_000_000).astype(np.uint64)
    low = lowests(6, 40)
    counts = np.bincount(np.searchsorted(low, values, "right") - 1, minlength=BUCKETS)
    histogram = Histogram(counts.astype(np.uint64), int(values.sum()), 1, int(values.max()))
    exact = float(np.percentile(values, 99.9, method="inverted_cdf"))
    assert abs(histogram.percentile(99.9) - exact) <= exact * 0.01


def test_histograms_add_up_and_subtract(make: Make) -> None:
    file = make()
    file.model(0, "mlp")
    file.record(0, "queue", 100, 5_000)
    with CountersFile(file.path) as counters:
        before = counters.snapshot().models[0].stages
        file.record(0, "queue", 700, 700, 900)
        after = counters.snapshot().models[0].stages
    between = after["queue"] - before["queue"]
    assert (between.count, between.sum) == (3, 2300)
    assert abs(between.percentile(50) - 700) <= 8
    assert abs(between.percentile(100) - 900) <= 16
    assert between.least <= 700 and 900 <= between.most <= 5_000
    again = before["queue"] + between
    assert np.array_equal(again.counts, after["queue"].counts)
    assert (again.count, again.sum) == (5, 7400)
    assert (after["write"] - before["write"]).percentile(99) == 0
    with pytest.raises(ValueError, match="different layouts"):
        _ = between + Histogram.empty(5, 40)


def test_the_precision_of_a_model_comes_with_a_later_look(make: Make) -> None:
    file = make(models=3)
    file.model(0, "early", precision=0)
    file.model(1, "quantised", precision=4)
    file.model(2, "newer", precision=99)
    with CountersFile(file.path) as counters:
        found = [model.precision for model in counters.snapshot().models]
        assert found == ["", "int8", "#99"]
        file.model(0, "early", precision=2)
        assert counters.snapshot().models[0].precision == "bf16"


def test_live_sequences_are_read_with_each_look(make: Make) -> None:
    file = make(models=2)
    file.model(0, "vad", sequences=3)
    file.model(1, "plain")
    with CountersFile(file.path) as counters:
        assert [model.sequences for model in counters.snapshot().models] == [3, 0]
        file.model(0, "vad", sequences=10_000)
        assert counters.snapshot().models[0].sequences == 10_000


def test_an_index_that_another_model_has_taken_is_another_model(make: Make) -> None:
    file = make()
    file.model(0, "old", generation=3)
    with CountersFile(file.path) as counters:
        assert counters.snapshot().models[0].key == (0, 3)
        file.model(0, "", generation=0)
        assert counters.snapshot().models == []
        file.model(0, "new", generation=9)
        (model,) = counters.snapshot().models
    assert (model.name, model.key) == ("new", (0, 9))


def test_a_model_that_changes_while_it_is_read_is_left_out(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make()
    file.model(0, "going", generation=3)
    file.model(1, "staying", generation=4)
    with CountersFile(file.path) as counters:
        read = counters._model

        def read_and_replace(*args: object) -> object:
            result = read(*args)  # type: ignore[arg-type]
            file.model(0, "coming", generation=5)
            return result

        monkeypatch.setattr(counters, "_model", read_and_replace)
        assert [model.name for model in counters.snapshot().models] == ["staying"]


def test_a_dead_servers_file_is_told_from_a_running_ones(make: Make) -> None:
    file = make()
    with CountersFile(file.path) as counters:
        assert counters.is_alive() and counters.snapshot().is_alive
        file.close()
        assert not counters.is_alive()
        assert not counters.was_replaced()
        make()
        assert not counters.was_replaced(), "the same file, written anew in place"
        file.path.rename(file.path.with_suffix(".gone"))
        assert counters.was_replaced()


def test_wider_strides_and_longer_tables_of_a_newer_server_are_read(make: Make) -> None:
    file = make(models=30, writers=40)
    file.model(29, "mlp")
    file.writer(39)
    file.model_slot(29, 39, "success", 5)
    with CountersFile(file.path) as counters:
        assert counters.snapshot().models[0].counters["success"] == 5


def test_a_name_that_would_move_a_cursor_is_made_harmless(make: Make) -> None:
    file = make()
    file.model(0, "evil\x1b[2J\nname")
    with CountersFile(file.path) as counters:
        assert counters.snapshot().models[0].name == "evil\ufffd[2J\ufffdname"


REFUSED = [
    (0, b"LMOTHER1", "begins with b'LMOTHER1', wanted b'LMCNTNS1'"),
    (8, struct.pack("<I", 3), "version 3 of the format, this reader knows 2"),
    (12, struct.pack("<I", 10_000), "stages: got 10000, wanted 1 to 64"),
    (16, struct.pack("<Q", 1 << 60), "the file was cut short"),
    (128, struct.pack("<QII", 321, 192, 8), "wanted multiples of 8"),
    (128, struct.pack("<QII", 1 << 63, 192, 8), "models end at"),
    (128, struct.pack("<QII", 320, 192, 1 << 30), "entries of models: got 1073741824"),
    (128, struct.pack("<QII", 320, 8, 8), "stride of models: got 8, wanted 172"),
    (208, struct.pack("<QII", 1 << 40, 17984, 8), "histograms end at"),
    (224, struct.pack("<II", 16, 64), "buckets of a histogram"),
    (276, struct.pack("<I", 8), "bytes of an entry: got 8, wanted 176"),
]


@pytest.mark.parametrize("offset, data, wanted", REFUSED)
def test_a_foreign_or_damaged_file_is_refused_by_its_path_and_its_fault(
    make: Make, offset: int, data: bytes, wanted: str
) -> None:
    file = make()
    file.put(offset, data)
    with pytest.raises(CountersFileError) as error:
        CountersFile(file.path)
    assert str(file.path) in str(error.value) and wanted in str(error.value)


def test_a_file_that_is_cut_while_it_is_read_gives_an_error_and_no_signal(make: Make) -> None:
    file = make()
    file.model(7, "mlp")
    file.writer(0)
    with CountersFile(file.path) as counters:
        counters.snapshot()
        os.ftruncate(file.fd, file.size - 8)
        os.ftruncate(file.fd, file.at("models", 0))
        with pytest.raises(CountersFileError, match="the file was cut short"):
            counters.snapshot()


@pytest.mark.parametrize("what", ["nothing", "folder", "empty", "fifo"])
def test_a_path_that_is_no_file_of_counters_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x"
    if what == "folder":
        path.mkdir()
    elif what == "empty":
        path.touch()
    elif what == "fifo":
        os.mkfifo(path)
    with pytest.raises(CountersFileError, match=str(path)):
        CountersFile(path)


def full_file(make: Make) -> CountersFileWriter:
    file = make(shards=2, models=4, writers=6)
    for index in range(3):
        file.model(index, f"model{index}", generation=index + 1)
        for stage in STAGES:
            file.record(index, stage, 100, 1 << 20, 1 << 39, shard=index % 2)
    for writer in range(5):
        file.writer(writer, state=1 + writer % 2, role=writer % 3, number=writer, tid=writer)
        file.server_slot(writer, "requests", writer)
        file.server_slot(writer, "thread_since_ns", 1)
    for shard in range(2):
        entries = [file.entry(i, id=f"r{i}", stages={"total": i}) for i in range(4)]
        file.recent(shard, *entries)
        file.slow(shard, 0, NONE, *entries)
        file.slow(shard, 1, time.monotonic_ns() // WINDOW_NS, *entries)
    return file


def look_at_everything(path: Path) -> None:
    with CountersFile(path) as counters:
        snapshot = counters.snapshot()
        for model in snapshot.models:
            for stage in model.stages.values():
                stage.percentile(99)
        counters.recent()
        counters.slow()
        counters.slow(since_start=False)


def mutate(chance: random.Random, data: bytes) -> bytes:
    """A few words of the head or of anything else changed, or the end cut off, or all noise."""
    kind = chance.random()
    if kind < 0.02:
        return chance.randbytes(chance.randrange(2000))
    if kind < 0.1:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        end = chance.choice((320, 320, 320, 16_000, len(data)))
        at = chance.randrange(end) // 4 * 4
        size = chance.choice((1, 2, 4, 8))
        value = chance.choice(
            (0, 1, 8, 0xFFFF, 1 << 31, (1 << 64) - 1, chance.getrandbits(64), len(data))
        )
        changed[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return bytes(changed)


def test_no_file_brings_the_reader_out_of_its_manners(make: Make) -> None:
    """Thousands of damaged files: each is read or refused, soon, and in little memory."""
    seed = int(os.environ.get("LUMEN_FUZZ_SEED", time.time_ns() % 1_000_000))
    print(f"seed {seed}: LUMEN_FUZZ_SEED={seed} runs the same again")
    chance = random.Random(seed)
    whole = full_file(make)
    data = whole.path.read_bytes()
    look_at_everything(whole.path)
    refused = 0
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # a disk would take a minute
        path = Path(folder) / "damaged"
        for _ in range(4_000):
            path.write_bytes(mutate(chance, data))
            begin = time.monotonic()
            try:
                look_at_everything(path)
            except CountersFileError as error:
                refused += 1
                assert str(path) in str(error)
            assert time.monotonic() - begin < 20
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert 500 < refused < 4_000, "both must have been tried"
    assert grown_kib < 1 << 20


def test_a_sparse_file_of_great_tables_takes_neither_time_nor_memory(make: Make) -> None:
    file = make()
    file.words(16, 1 << 42)
    os.ftruncate(file.fd, 1 << 42)
    file.put(128, struct.pack("<QII", 1 << 20, 16_384, 4_096))
    file.put(144, struct.pack("<QII", 1 << 30, 4_096, 16_384))
    begin = time.monotonic()
    with pytest.raises(CountersFileError):
        look_at_everything(file.path)
    assert time.monotonic() - begin < 20


def test_a_look_reads_no_more_than_a_bound(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    file = full_file(make)
    monkeypatch.setattr("lumen_engine._counters_pieces.MAX_BYTES_READ", 100_000)
    with CountersFile(file.path) as counters, pytest.raises(CountersFileError, match="over 0 MiB"):
        counters.snapshot()


def test_servers_are_found_by_their_files(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("lumen_engine._counters_find.SHARED_MEMORY", tmp_path / "none")
    with pytest.raises(CountersFileError, match="no server found: looked for .*/lumen-"):
        counters_file.resolve()
    dead = make("lumen-7.counters", is_alive=False)
    with pytest.raises(CountersFileError, match="no server runs"):
        counters_file.resolve()
    one = make("lumen-41.counters")
    assert [(s.pid, s.is_alive) for s in counters_file.find()] == [(41, True), (7, False)]
    assert counters_file.resolve() == one.path
    assert counters_file.resolve("7") == dead.path
    assert counters_file.resolve("some/path") == Path("some/path")
    two = make("lumen-42.counters")
    with pytest.raises(CountersFileError, match="several servers run") as error:
        counters_file.resolve()
    assert str(one.path) in str(error.value) and str(two.path) in str(error.value)
    elsewhere = make("mine.stats")
    assert counters_file.resolve(str(os.getpid())) in [f.path for f in (one, two, dead, elsewhere)]
    with pytest.raises(CountersFileError, match="process 4000000000, which does not run"):
        counters_file.resolve("4000000000")


def test_requests_of_the_flight_recorder_are_told_with_all_that_is_known(make: Make) -> None:
    file = make(shards=2)
    file.model(2, "mlp", generation=5)
    trace = (1, bytes(range(16)), bytes(range(8)))
    stages = {"queue": 1_500, "total": 9_000}
    entry = file.entry(
        12, first_byte=99, id="abc", stages=stages, rows=3, model=2, generation=5, worker=4,
        status=429, queue=5 | 3 << 4, allocator=1, cache=2, traceparent=trace,
    )  # fmt: skip
    file.recent(1, file.entry(11, first_byte=98, model=2, generation=4), entry)
    with CountersFile(file.path) as counters:
        gone, request = counters.recent()
    assert (gone.model, gone.id, gone.worker, gone.traceparent) == ("#2 (gone)", "11", None, "")
    assert (request.number, request.id, request.first_byte_ns, request.shard) == (12, "abc", 99, 1)
    assert (request.model, request.rows, request.worker, request.status) == ("mlp", 3, 4, 429)
    assert (request.queue_type, request.lane) == ("auto", "batched")
    assert request.allocator_type == "standard"
    assert request.cache == "shared"
    assert request.stages["queue"] == 1_500 and request.stages["parse"] is None
    assert request.traceparent == ("00-000102030405060708090a0b0c0d0e0f-0001020304050607-01")


def test_an_entry_that_is_being_written_is_left_out(make: Make) -> None:
    file = make()
    written = [file.entry(i, mark=mark) for i, mark in enumerate((2, 3, 0, 4))]
    file.recent(0, *written)
    with CountersFile(file.path) as counters:
        assert [request.number for request in counters.recent()] == [0, 3]


def test_an_entry_that_changes_while_it_is_read_is_left_out(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make()
    file.recent(0, file.entry(1, mark=2), file.entry(2, mark=2))
    with CountersFile(file.path) as counters:
        read = counters._flight._read
        calls = 0

        def read_and_change(at: int, count: int) -> object:
            nonlocal calls
            calls += 1
            if calls == 3:
                file.put(file.at("recent", 0) + 64, file.entry(9, mark=4))
            return read(at, count)

        monkeypatch.setattr(counters._flight, "_read", read_and_change)
        assert [request.number for request in counters.recent()] == [2]


def test_the_slowest_come_first_since_the_start_and_of_the_last_minute(make: Make) -> None:
    file = make(shards=2)
    now = time.monotonic_ns() // WINDOW_NS
    ns = {10: 500, 11: 900, 12: 700}
    of = {n: file.entry(n, stages={"total": total}) for n, total in ns.items()}
    file.slow(0, 0, NONE, of[10], of[11])
    file.slow(1, 0, NONE, of[12])
    file.slow(0, 1 + now % 6, now, of[10])
    file.slow(1, 1 + (now - 100) % 6, now - 100, of[11])
    with CountersFile(file.path) as counters:
        assert [request.number for request in counters.slow()] == [11, 12, 10]
        assert [request.number for request in counters.slow(since_start=False)] == [10]
        file.close()
        lately = counters.slow(since_start=False)
        assert [request.number for request in lately] == [10], "the last minute that it lived"
