"""KServe's SDK against the server whose address is the argument: prints each answer as JSON.

Runs in an environment of its own (tools/judge_programs.py), which has no part of Lumen.
"""

from __future__ import annotations

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


def tensor(name: str, array: np.ndarray, datatype: str, binary: bool) -> InferInput:
    made = InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


async def add_sub(client: InferenceRESTClient, url: str, binary: bool, names: list[str]) -> object:
    left = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    right = np.full((2, 3), 0.3, np.float32)
    inputs = [tensor("left", left, "FP32", binary), tensor("right", right, "FP32", binary)]
    outputs = [RequestedOutput(name, {"binary_data": binary}) for name in names]
    request = InferRequest("add_sub", inputs, request_id="a1", request_outputs=outputs or None)
    reply = await client.infer(url, request, model_name="add_sub")
    # A JSON number says any float32 exactly.
    arrays = {one.name: one.as_numpy().astype(float).tolist() for one in reply.outputs}
    return {"id": reply.id, "model": reply.model_name, "arrays": arrays}


async def texts(client: InferenceRESTClient, url: str, binary: bool) -> object:
    rows = np.array(["", "Grüße", 'a "quoted" word'], dtype=object)
    request = InferRequest("identity_bytes", [tensor("x", rows, "BYTES", binary)])
    reply = await client.infer(url, request, model_name="identity_bytes")
    shown = lambda item: item.decode() if isinstance(item, bytes) else item  # noqa: E731
    return [shown(item) for item in reply.outputs[0].as_numpy().flatten().tolist()]


async def main(url: str) -> dict[str, object]:
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    answers: dict[str, object] = {
        "ready": await client.is_server_ready(url),
        "live": await client.is_server_live(url),
        "model ready": await client.is_model_ready(url, "add_sub"),
        "no model ready": await client.is_model_ready(url, "none"),
    }
    for form, binary in (("JSON", False), ("binary", True)):
        answers[f"all, {form}"] = await add_sub(client, url, binary, [])
        answers[f"one, {form}"] = await add_sub(client, url, binary, ["difference"])
        answers[f"texts, {form}"] = await texts(client, url, binary)
    request = InferRequest("none", [tensor("x", np.zeros(1, np.float32), "FP32", True)])
    try:
        await client.infer(url, request, model_name="none")
    except Exception as error:
        answers["no model"] = str(error)
    await client.close()
    return answers


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
