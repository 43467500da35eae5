"""Calls of tritonclient's gRPC client, sync and aio, and of grpc itself, against a Lumen server.

    grpc_calls.py HOST:PORT CHECK...

Runs in the environment of tools/requirements-grpc.txt. Prints the names of the checks that held;
any other end is a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import queue
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

TYPES = {
    "BOOL": np.bool_,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
RNG = np.random.default_rng(3)


def tensor(name: str, array: np.ndarray, datatype: str) -> triton.InferInput:
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


def random_array(datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = TYPES[datatype]
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
    if kind is np.bool_:
        return RNG.integers(0, 2, shape).astype(np.bool_)
    return np.frombuffer(RNG.bytes(count), kind).reshape(shape)


def code_of(call: Callable[[], object]) -> tuple[str, str]:
    try:
        call()
    except triton.InferenceServerException as refused:
        return refused.status() or "", refused.message() or ""
    except grpc.RpcError as refused:
        return str(refused.code()), refused.details() or ""
    return "OK", ""


class Checks:
    def __init__(self, url: str) -> None:
        self.url = url
        self.client = triton.InferenceServerClient(url)
        self.channel = grpc.insecure_channel(url, [("grpc.max_receive_message_length", -1)])
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def documents(self) -> None:
        client = self.client
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
        server = client.get_server_metadata()
        assert server.name == "lumen" and "parameters" in server.extensions
        model = client.get_model_metadata("mlp")
        assert (model.name, list(model.versions)) == ("mlp", ["1"])
        (given,) = model.inputs
        assert (given.name, given.datatype, list(given.shape)) == ("input", "FP32", [-1, 256])

    def health(self) -> None:
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x01"
        status, _ = code_of(lambda: check(b"\x0a\x04none"))
        assert status == "StatusCode.NOT_FOUND", status

    def tensors_of_all_types_come_back(self) -> None:
        for datatype in TYPES:
            name = f"identity_{datatype.lower()}"
            for elements in (1, 15, 0, 7_000):
                array = random_array(datatype, (elements,))
                result = self.client.infer(name, [tensor("x", array, datatype)])
                back = result.as_numpy("y")
                assert back.dtype == array.dtype and back.tobytes() == array.tobytes(), name

    def typed_contents_are_read(self) -> None:
        for datatype, field in CONTENTS.items():
            array = random_array(datatype, (18,))
            request = service_pb2.ModelInferRequest(model_name=f"identity_{datatype.lower()}")
            given = request.inputs.add(name="x", datatype=datatype, shape=array.shape)
            getattr(given.contents, field).extend(array.ravel().tolist())
            reply = self.stub.ModelInfer(request)
            back = np.frombuffer(reply.raw_output_contents[0], array.dtype)
            np.testing.assert_array_equal(back, array.ravel())

    def texts_come_back(self) -> None:
        texts = np.array(["", "Grüße", "a\0b", "x" * 300, "y", "z"], np.object_)
        result = self.client.infer("identity_bytes", [tensor("x", texts, "BYTES")])
        back = [one.decode() for one in result.as_numpy("y").ravel()]
        assert back == texts.ravel().tolist()
        request = service_pb2.ModelInferRequest(model_name="identity_bytes")
        given = request.inputs.add(name="x", datatype="BYTES", shape=[2])
        given.contents.bytes_contents.extend([b"ab", b""])
        reply = self.stub.ModelInfer(request)
        assert reply.raw_output_contents[0] == b"\2\0\0\0ab\0\0\0\0"

    def parts_of_a_reply(self) -> None:
        array = RNG.random((2, 256), np.float32)
        wanted = [triton.InferRequestedOutput("output", class_count=2)]
        result = self.client.infer(
            "mlp", [tensor("input", array, "FP32")], request_id="mine", outputs=wanted
        )
        reply = result.get_response()
        assert (reply.id, reply.model_name, reply.model_version) == ("mine", "mlp", "1")
        plain = self.client.infer("mlp", [tensor("input", array, "FP32")]).as_numpy("output")
        for row, classes in zip(plain, result.as_numpy("output"), strict=True):
            best = [int(one.decode().split(":")[1]) for one in classes]
            assert best == np.argsort(-row)[:2].tolist()

    def large_messages(self) -> None:
        for elements in (4_000, 5_000, 300_000, 4_000_000):
            array = RNG.random(elements, np.float32)
            result = self.client.infer("identity_fp32", [tensor("x", array, "FP32")])
            np.testing.assert_array_equal(result.as_numpy("y"), array)

    def ensembles(self) -> None:
        config = self.client.get_model_config("ensemble").config
        assert config.platform == "ensemble"
        steps = config.ensemble_scheduling.step
        assert [step.model_name for step in steps] == ["identity_fp32"] * 2
        assert (dict(steps[0].output_map), steps[1].model_version) == ({"y": "between"}, -1)
        for size in (1, 1_000, 300_000):
            array = RNG.random(size, np.float32)
            result = self.client.infer("ensemble", [tensor("x", array, "FP32")])
            np.testing.assert_array_equal(result.as_numpy("y"), array)

    def refusals(self) -> None:
        array = np.zeros((1, 256), np.float32)
        good = tensor("input", array, "FP32")
        infer = self.client.infer
        for wanted, words, call in (
            ("NOT_FOUND", "'none' is not in", lambda: infer("none", [good])),
            ("NOT_FOUND", "'none' is not in", lambda: self.client.get_model_metadata("none")),
            (
                "INVALID_ARGUMENT",
                "no input 'x'",
                lambda: infer("mlp", [tensor("x", array, "FP32")]),
            ),
            (
                "INVALID_ARGUMENT",
                "256",
                lambda: infer("mlp", [tensor("input", array[:, :9], "FP32")]),
            ),
            ("INVALID_ARGUMENT", "", lambda: infer("mlp", [])),
            ("INVALID_ARGUMENT", "valid protobuf", lambda: self.raw(b"\x0a\xff", "ModelConfig")),
            ("UNIMPLEMENTED", "not there", lambda: self.channel.unary_unary("/a.B/C")(b"")),
            ("INVALID_ARGUMENT", "valid protobuf", lambda: self.raw(b"\x0a\x05ab")),
        ):
            status, message = code_of(call)
            assert status == f"StatusCode.{wanted}" and words in message, (wanted, status, message)
        assert self.client.is_server_live()

    def raw(self, message: bytes, method: str = "ModelInfer") -> bytes:
        path = f"/inference.GRPCInferenceService/{method}"
        return self.channel.unary_unary(path)(message)

    def many_at_once(self) -> None:
        def ask(number: int) -> None:
            array = np.full(1 + number % 50, number, np.float32)
            result = self.client.infer("identity_fp32", [tensor("x", array, "FP32")])
            np.testing.assert_array_equal(result.as_numpy("y"), array)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(ask, range(2_000)))

    def control(self) -> None:
        """Of the unix socket, which may change the server."""
        client = self.client
        config = client.get_model_config("mlp").config
        assert (config.name, config.input[0].name, list(config.input[0].dims)) == (
            "mlp",
            "input",
            [256],
        )
        assert config.input[0].data_type == model_config_pb2.TYPE_FP32
        assert config.response_cache.enable is False
        given = [tensor("input", RNG.random((3, 256), np.float32), "FP32")]
        before = client.get_inference_statistics("mlp").model_stats[0]
        client.infer("mlp", given)
        after = client.get_inference_statistics("mlp").model_stats[0]
        assert after.inference_count - before.inference_count == 3
        assert after.inference_stats.success.count - before.inference_stats.success.count == 1
        assert after.inference_stats.success.ns > before.inference_stats.success.ns
        assert len(client.get_inference_statistics().model_stats) > 10
        index = {one.name: one.state for one in client.get_model_repository_index().models}
        assert index["mlp"] == "READY"
        client.unload_model("mlp")
        assert not client.is_model_ready("mlp")
        client.load_model("mlp", config='{"response_cache": {"enable": true}}')
        assert client.is_model_ready("mlp")
        assert client.get_model_config("mlp").config.response_cache.enable
        client.load_model("mlp")
        assert not client.get_model_config("mlp").config.response_cache.enable

    def settings(self) -> None:
        client = self.client
        said = client.update_log_settings({"log_info": False, "log_verbose_level": 0})
        assert said.settings["log_info"].bool_param is False
        assert client.update_log_settings({"log_info": True}).settings["log_info"].bool_param
        assert client.get_log_settings().settings["log_format"].string_param == "ISO8601"
        level = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_file": None}
        traces = client.update_trace_settings("mlp", level)
        assert list(traces.settings["trace_level"].value) == ["OFF"]
        assert client.get_trace_settings("mlp").settings == traces.settings

    def shared_memory(self) -> None:
        client, key = self.client, f"/test_{os.getpid()}"
        region = shm.create_shared_memory_region("io", key, 4096)
        try:
            client.unregister_system_shared_memory()
            assert not client.get_system_shared_memory_status().regions
            client.register_system_shared_memory("io", key, 4096)
            told = client.get_system_shared_memory_status("io").regions["io"]
            assert (told.name, told.key, told.offset, told.byte_size) == ("io", key, 0, 4096)
            array = RNG.random((1, 256), np.float32)
            given = triton.InferInput("input", [1, 256], "FP32")
            wanted = triton.InferRequestedOutput("output")
            plain = client.infer("mlp", [tensor("input", array, "FP32")]).as_numpy("output")
            for offset in (0, 1):  # 1: at no address of a float
                shm.set_shared_memory_region(region, [array], offset=offset)
                given.set_shared_memory("io", 1024, offset=offset)
                wanted.set_shared_memory("io", 40, offset=2048)
                reply = client.infer("mlp", [given], outputs=[wanted]).get_response()
                assert list(reply.raw_output_contents) == [b""]
                written = shm.get_contents_as_numpy(region, np.float32, [1, 10], offset=2048)
                np.testing.assert_array_equal(written, plain)
            wanted.set_shared_memory("io", 39)
            status, words = code_of(lambda: client.infer("mlp", [given], outputs=[wanted]))
            assert status == "StatusCode.INVALID_ARGUMENT" and "39" in words, (status, words)
            assert not client.get_cuda_shared_memory_status().regions
            client.unregister_cuda_shared_memory()
            client.unregister_system_shared_memory("io")
            status, words = code_of(lambda: client.infer("mlp", [given]))
            assert status == "StatusCode.NOT_FOUND" and "'io'" in words, (status, words)
        finally:
            shm.destroy_shared_memory_region(region)

    def refused_changes(self) -> None:
        client = self.client
        bad = {"trace_level": ["TIMESTAMPS"]}
        for wanted, words, call in (
            ("NOT_FOUND", "'none' is not in", lambda: client.get_model_config("none")),
            ("NOT_FOUND", "'none' is not in", lambda: client.get_inference_statistics("none")),
            ("NOT_FOUND", "'none' is not in", lambda: client.load_model("none")),
            ("INVALID_ARGUMENT", "JSON", lambda: client.load_model("mlp", config="{")),
            (
                "UNIMPLEMENTED",
                "--load-files",
                lambda: client.load_model("mlp", config="{}", files={"file:1/model.onnx": b"a"}),
            ),
            ("UNIMPLEMENTED", "traces", lambda: client.update_trace_settings("mlp", bad)),
            (
                "INVALID_ARGUMENT",
                "no such shared memory",
                lambda: client.register_system_shared_memory("a", "/not_there", 8),
            ),
            (
                "UNIMPLEMENTED",
                "CUDA",
                lambda: client.register_cuda_shared_memory("a", b"YQ==", 0, 8),
            ),
        ):
            status, message = code_of(call)
            assert status == f"StatusCode.{wanted}" and words in message, (wanted, status, message)

    def changes_are_for_the_unix_socket(self) -> None:
        client = self.client
        for call in (
            lambda: client.load_model("mlp"),
            lambda: client.unload_model("mlp"),
            lambda: client.update_log_settings({"log_info": False}),
            lambda: client.get_system_shared_memory_status(),
            lambda: client.register_system_shared_memory("a", "/a", 8),
        ):
            status, message = code_of(call)
            assert status == "StatusCode.PERMISSION_DENIED" and "--tcp-" in message, message
        assert client.is_model_ready("mlp")

    def streams(self) -> None:
        """More in flight than the server has requests; each reply is its request's."""
        replies: queue.Queue[tuple[triton.InferResult | None, Exception | None]] = queue.Queue()
        self.client.start_stream(lambda result, error: replies.put((result, error)))
        arrays = {str(i): RNG.random(1 + i % 60, np.float32) for i in range(400)}
        for name, array in arrays.items():
            given = [tensor("x", array, "FP32")]
            self.client.async_stream_infer("identity_fp32", given, request_id=name)
        for _ in range(400):
            result, error = replies.get(timeout=60)
            assert error is None and result is not None, error
            np.testing.assert_array_equal(
                result.as_numpy("y"), arrays.pop(result.get_response().id)
            )
        given = [tensor("x", RNG.random(3, np.float32), "FP32")]
        self.client.async_stream_infer("none", given)
        result, error = replies.get(timeout=60)
        assert result is None and "'none' is not in" in str(error)
        self.client.async_stream_infer(
            "identity_fp32", given, enable_empty_final_response=True, request_id="last"
        )
        result, error = replies.get(timeout=60)
        assert result is not None and result.get_response().id == "last"
        assert result.get_response().parameters["triton_final_response"].bool_param
        self.client.stop_stream()
        assert replies.empty()

    def compressed_messages(self) -> None:
        for coding in ("gzip", "deflate"):
            for elements in (3, 100_000):
                array = np.arange(elements, dtype=np.float32)
                given = [tensor("x", array, "FP32")]
                result = self.client.infer("identity_fp32", given, compression_algorithm=coding)
                np.testing.assert_array_equal(result.as_numpy("y"), array)

    def aio(self) -> None:
        async def stream(client: triton_aio.InferenceServerClient) -> None:
            arrays = [RNG.random(1 + i, np.float32) for i in range(100)]

            async def requests() -> AsyncIterator[dict[str, object]]:
                for i, array in enumerate(arrays):
                    yield {
                        "model_name": "identity_fp32",
                        "inputs": [tensor("x", array, "FP32")],
                        "request_id": str(i),
                    }

            seen = 0
            async for result, error in client.stream_infer(requests()):
                assert error is None, error
                array = arrays[int(result.get_response().id)]
                np.testing.assert_array_equal(result.as_numpy("y"), array)
                seen += 1
            assert seen == len(arrays)

        async def ask() -> None:
            async with triton_aio.InferenceServerClient(self.url) as client:
                assert await client.is_server_ready()
                arrays = [RNG.random(50, np.float32) for _ in range(100)]
                results = await asyncio.gather(
                    *(client.infer("identity_fp32", [tensor("x", a, "FP32")]) for a in arrays)
                )
                for array, result in zip(arrays, results, strict=True):
                    np.testing.assert_array_equal(result.as_numpy("y"), array)
                await stream(client)

        asyncio.run(ask())

    def calls_that_are_given_up(self) -> None:
        array = RNG.random((64, 1, 8, 8), np.float32)
        given = [tensor("image", array, "FP32")]
        request = triton._utils._get_inference_request
        message = request("digits", given, "", "", None, 0, False, False, 0, None, None)
        calls = [self.stub.ModelInfer.future(message, timeout=0.000001 * i) for i in range(1, 400)]
        for call in calls[::2]:
            call.cancel()
        for call in calls[1::2]:
            # grpcio 1.85 forgets one such call in some 10,000, although their time is up here.
            with contextlib.suppress(grpc.FutureTimeoutError):
                call.exception(timeout=5)
        # While the server still has the others, there may be no room for one more.
        end = time.monotonic() + 20
        while code_of(lambda: self.client.infer("digits", given))[0] != "OK":
            assert time.monotonic() < end
        result = self.client.infer("digits", given)
        assert result.as_numpy(result.get_response().outputs[0].name).shape[0] == 64


def main() -> None:
    # A call that hangs says where, and ends.
    faulthandler.dump_traceback_later(100, exit=True)
    checks = Checks(sys.argv[1])
    for name in sys.argv[2:]:
        getattr(checks, name)()
        print(name, flush=True)
    if "calls_that_are_given_up" in sys.argv:
        # A channel of grpcio 1.85 that has forgotten one of its calls never closes.
        os._exit(0)
    checks.client.close()
    checks.channel.close()


if __name__ == "__main__":
    main()
