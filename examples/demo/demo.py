#!/usr/bin/env python3
# The demo: starts the server, and through the stock tritonclient reads a photographed receipt,
# classifies the held-out digits, runs gradient boosting on a table, and prints where the time goes.
# Run by ./dev demo [--keep].
# Errors: exits 1 when a request fails, a line of the receipt is read wrongly, or fewer than 97 % of
# the digits are right.
from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tritonclient.http as triton

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("models", "python", "tools")]
import judge_programs
from digits import data as digits_data
from lumen_engine import Server, ServerError
from lumen_engine.demo import receipt
from lumen_engine.demo.models import write_models
from tabular import data as table_data

REQUIRED_ACCURACY = 0.97
SHADES = " .:-=+*#%@"
WARM_UP = 20


@dataclass
class Timing:
    model: str
    latencies_us: list[float] = field(default_factory=list)
    server_us: float = 0.0  # mean time in the server, first byte to reply encoded
    model_us: float = 0.0  # mean time in the model itself


class Client:
    """The stock client, timed."""

    def __init__(self, address: str) -> None:
        self.http = triton.InferenceServerClient(address)
        self.address = address

    def infer(self, model: str, name: str, array: np.ndarray, output: str) -> np.ndarray:
        tensor = triton.InferInput(name, list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        return self.http.infer(model, [tensor]).as_numpy(output)

    def totals(self, model: str) -> dict[str, dict[str, int]]:
        return self.http.get_inference_statistics(model)["model_stats"][0]["inference_stats"]

    def timed(
        self, model: str, name: str, arrays: list[np.ndarray], output: str
    ) -> tuple[list[np.ndarray], Timing]:
        for array in arrays[:WARM_UP]:
            self.infer(model, name, array, output)
        timing, answers = Timing(model), []
        before = self.totals(model)
        for array in arrays:
            start = time.perf_counter_ns()
            answers.append(self.infer(model, name, array, output))
            timing.latencies_us.append((time.perf_counter_ns() - start) / 1000)
        after = self.totals(model)

        def mean_us(stage: str) -> float:
            count = after[stage]["count"] - before[stage]["count"]
            return (after[stage]["ns"] - before[stage]["ns"]) / 1000 / max(count, 1)

        timing.server_us, timing.model_us = mean_us("success"), mean_us("compute_infer")
        return answers, timing


def ascii_image(image: np.ndarray) -> list[str]:
    """Two characters a pixel, so that a pixel is about square in a terminal."""
    return ["".join(SHADES[min(9, int(v * 10 / 17))] * 2 for v in row) for row in image]


def show_digits(
    images: np.ndarray, guesses: np.ndarray, sure: np.ndarray, truth: np.ndarray, chosen: list[int]
) -> None:
    blocks = [ascii_image(images[i, 0]) for i in chosen]
    for rows in zip(*blocks):
        print("  " + " │ ".join(rows))
    says = [f"says {guesses[i]} ({sure[i]:.0%})" for i in chosen]
    print("  " + " │ ".join(line.ljust(16) for line in says))
    marks = [f"is   {truth[i]} " + ("✓" if guesses[i] == truth[i] else "✗ wrong") for i in chosen]
    print("  " + " │ ".join(line.ljust(16) for line in marks))


def digits(client: Client) -> tuple[float, Timing]:
    _, images, _, truth = digits_data.split()
    answers, timing = client.timed(
        "digits", "image", [i[np.newaxis] for i in images], "probabilities"
    )
    probabilities = np.concatenate(answers)
    guesses, sure = probabilities.argmax(1), probabilities.max(1)
    right = int((guesses == truth).sum())
    print(f"\nDigits: {right} of {len(truth)} held-out images right ({right / len(truth):.2%})\n")
    # Three from the start and, so that nobody has to trust the number, one that it gets wrong.
    wrong = [int(i) for i in np.flatnonzero(guesses != truth)[:1]]
    show_digits(images, guesses, sure, truth, [0, 1, 2] + (wrong or [3]))
    return right / len(truth), timing


def table(client: Client) -> Timing | None:
    if not client.http.is_model_ready("tabular"):
        print("\nTable: left out, this build has no ONNX Runtime (see the lines above)")
        return None
    _, rows, _, truth = table_data.split()
    answers, timing = client.timed("tabular", "X", [row[np.newaxis] for row in rows], "label")
    right = int((np.concatenate(answers) == truth).sum())
    share = f"({right / len(truth):.2%})"
    print(f"\nTable: {right} of {len(truth)} held-out tumours told right {share},")
    print("  by gradient boosting of scikit-learn on 30 measurements")
    return timing


def read_receipt(client: Client, repository: Path) -> tuple[bool, list[Timing]]:
    """Whether all of it was right."""
    photo = receipt.photograph(receipt.draw())
    photo.save(repository.parent / "receipt.png")
    given = [receipt.detection_input(photo)]
    maps, finding = client.timed("ocr_detection", "x", given * 20, "sigmoid_0.tmp_0")
    lines = receipt.lines_of(photo, maps[0][0, 0])
    given = [receipt.recognition_input(line) for line in lines]
    answers, reading = client.timed("ocr_recognition", "x", given * 10, "softmax_11.tmp_0")
    known = receipt.characters(repository / "ocr_recognition" / "1" / "model.onnx")
    found = [receipt.read(answer[0], known) for answer in answers[: len(lines)]]
    wanted = [text for text, _ in receipt.LINES]
    right = sum(line.text == text for line, text in zip(found, wanted))
    count = f"{right} of {len(wanted)} lines read by PP-OCR"
    print(f"\nReceipt, drawn and photographed in software: {count}")
    print(f"  ({(repository.parent / 'receipt.png').relative_to(ROOT)})\n")
    for line, text in zip(found, wanted):
        mark = "✓" if line.text == text else f"✗ is {text}"
        print(f"  │ {line.text:<24} │ {line.sure:>6.1%} sure  {mark}")
    return right == len(wanted) == len(found), [finding, reading]


def show_table(timings: list[Timing]) -> None:
    print("\nLatency, one request after the other, in µs\n")
    print(
        "  model             requests        p50        p99   in server    in model  model's share"
    )
    print("  " + "─" * 85)
    for t in timings:
        p50, p99 = np.percentile(t.latencies_us, [50, 99])
        share = t.model_us / float(np.mean(t.latencies_us))
        print(
            f"  {t.model:<17} {len(t.latencies_us):>8} {p50:>10,.0f} {p99:>10,.0f} "
            f"{t.server_us:>11,.1f} {t.model_us:>11,.1f} {share:>14.1%}"
        )
    print("\n  p50, p99: seen by the Python client, most of it its own time on the small models.")
    print(
        "  in server: first byte read to reply encoded. in model: its backend's call (both means)."
    )


def next_commands(server: Server, keep: bool) -> None:
    # A port that is gone helps nobody: without --keep the lines show the default address.
    address = server.url if keep else "127.0.0.1:8000"
    print("\nNext\n")
    if keep:
        stop = f"stop it: kill {server.pid}"
        print(f"  the server stays: http={address} pid={server.pid} ({stop})")
    else:
        print("  .venv/bin/lumen serve --model-repository models   # then, in another terminal:")
    print(f"  curl -s {address}/v2/models/digits")
    print(f'  curl -s {address}/v2/models/identity/infer -d \'{{"inputs":[{{"name":"input",')
    print('    "datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}\'')
    print("  ./dev bench server --quick                        # against FastAPI and Mosec")


def run(server: Server, repository: Path) -> int:
    client = Client(server.url)
    assert client.http.is_server_ready()
    is_read, timings = read_receipt(client, repository)
    accuracy, digits_timing = digits(client)
    timings += [digits_timing, *filter(None, [table(client)])]
    rng = np.random.default_rng(1)
    for model, columns in (("mlp", 256), ("identity", 256)):
        row = rng.standard_normal((1, columns)).astype(np.float32)
        timings.append(client.timed(model, "input", [row] * 1000, "output")[1])
    show_table(timings)
    if not is_read:
        print("\nFAILED: a line of the receipt was read wrongly", file=sys.stderr)
        return 1
    if accuracy < REQUIRED_ACCURACY:
        print(f"\nFAILED: {accuracy:.2%} is below {REQUIRED_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


def make_repository(repository: Path) -> Path:
    """Models of the tree, and those of the package rapidocr-onnxruntime."""
    shutil.rmtree(repository, ignore_errors=True)
    for name in ("digits", "identity", "mlp", "tabular"):
        shutil.copytree(ROOT / "models" / name, repository / name)
    packages = judge_programs.environment("demo") / "lib"
    (models,) = packages.glob("python3*/site-packages/rapidocr_onnxruntime/models")
    write_models(repository, models)
    return repository


def main() -> int:
    parser = argparse.ArgumentParser(description="Lumen on real images, through the stock client.")
    parser.add_argument("--keep", action="store_true", help="leave the server running")
    arguments = parser.parse_args()
    repository = make_repository(ROOT / ".build" / "demo" / "models")
    log = repository.parent / "server.log"
    try:
        # A session of its own: a Ctrl-C here is none of a server that stays.
        with Server(repository, log_file=log, start_new_session=True) as server:
            print("\n".join(server.banner))
            status = run(server, repository)
            keep = arguments.keep and status == 0
            next_commands(server, keep)
            if keep:
                server.let_go()
    except (ServerError, triton.InferenceServerException, OSError) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
