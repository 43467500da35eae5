"""Tools of gRPC and HTTP/2, unmodified: grpcurl, ghz, grpc-health-probe, h2spec.

Go builds them, for minutes: in ./dev soak, or with LUMEN_GO_TOOLS=1.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.harness import MODELS, ROOT, SANITIZED, Server, copy_models

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

pytestmark = pytest.mark.skipif(
    "LUMEN_GO_TOOLS" not in os.environ or judge_programs.find_go() is None or SANITIZED,
    reason="Go builds these tools for minutes: in ./dev soak, where there is a Go",
)

SERVICE = "inference.GRPCInferenceService"
INFER = {
    "model_name": "mlp",
    "inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 256]}],
    "raw_input_contents": [base64.b64encode(bytes(1024)).decode()],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tools")
    models = copy_models(folder / "models", [MODELS / "mlp"])
    with Server(models, unix=str(folder / "s.sock")) as server:
        yield server


def run(name: str, *words: str, status: int = 0) -> str:
    program = judge_programs.go_program(name)
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_grpcurl_finds_the_services_and_calls_them(served: Server) -> None:
    for target in (served.url, f"unix:{served.unix_path}"):
        services = run("grpcurl", "-plaintext", target, "list").split()
        assert SERVICE in services and "grpc.health.v1.Health" in services
        said = run("grpcurl", "-plaintext", target, "describe", "inference.ModelInferRequest")
        assert "repeated bytes raw_input_contents = 7" in said
        call = [target, f"{SERVICE}/ModelInfer"]
        reply = json.loads(run("grpcurl", "-plaintext", "-d", json.dumps(INFER), *call))
        assert reply["outputs"][0]["shape"] == ["1", "10"]
        assert len(base64.b64decode(reply["rawOutputContents"][0])) == 40
        call = [target, f"{SERVICE}/ModelConfig"]
        reply = json.loads(run("grpcurl", "-plaintext", "-d", '{"name": "mlp"}', *call))
        assert reply["config"]["input"][0]["dataType"] == "TYPE_FP32"
    said = run("grpcurl", "-plaintext", served.url, "describe", "no.such.Thing", status=1)
    assert "not found" in said


def test_the_health_probe_sees_a_server_and_no_other_service(served: Server) -> None:
    for target in (served.url, f"unix:{served.unix_path}"):
        assert "SERVING" in run("grpc-health-probe", "-addr", target)
        assert "SERVING" in run("grpc-health-probe", "-addr", target, "-service", SERVICE)
    said = run("grpc-health-probe", "-addr", served.url, "-service", "none", status=3)
    assert "not known" in said


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_ghz_has_an_answer_to_each_call(served: Server, method: str) -> None:
    words = ["--insecure", "--call", f"{SERVICE}.{method}", "-d", json.dumps(INFER)]
    report = json.loads(run("ghz", *words, "-n", "2000", "-c", "16", "-O", "json", served.url))
    assert report["statusCodeDistribution"] == {"OK": 2000}


# Each with its reason; a case that does not fail any more is to be taken out.
EXPECTED_OF_H2SPEC = {
    # The port speaks HTTP/1.1, too, and answers in it.
    "Sends invalid connection preface",
    # nghttp2 takes it for a stream that has been closed before.
    "Sends stream identifier that is numerically smaller than previous",
}


def test_h2spec_finds_no_more_than_is_explained(served: Server, tmp_path: Path) -> None:
    report = tmp_path / "h2spec.xml"
    host, port = served.address
    program = judge_programs.go_program("h2spec")
    words = [program, "-h", host, "-p", str(port), "-j", str(report), "-S"]
    subprocess.run(words, capture_output=True, timeout=300)
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) > 140
    failed = {
        case.get("classname")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    assert failed == EXPECTED_OF_H2SPEC
