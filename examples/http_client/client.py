# A client with nothing but Python's own http.client: the server's models, one request as JSON, one
# with the tensors as bytes behind the JSON (the protocol's binary form, for large tensors).
# `client.py [HOST:PORT]`; without an address it starts a server of its own. Errors: exits with the
# server's answer.
from __future__ import annotations

import array
import http.client
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Server


class Client:
    """One connection that is kept: a new one costs more than a small model."""

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address, timeout=10)

    def exchange(self, method: str, path: str, body: bytes = b"", **headers: str):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body or None, names)
        reply = self.connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise SystemExit(f"{reply.status}: {content.decode()}")
        return reply, content

    def infer_json(self, model: str, values: list[float]) -> list[float]:
        tensor = {"name": "input", "datatype": "FP32", "shape": [1, len(values)], "data": values}
        body = json.dumps({"inputs": [tensor]}).encode()
        _, content = self.exchange("POST", f"/v2/models/{model}/infer", body)
        return json.loads(content)["outputs"][0]["data"]

    def infer_binary(self, model: str, values: array.array[float]) -> array.array[float]:
        raw = values.tobytes()  # little-endian float32, as FP32 wants it
        tensor = {"name": "input", "datatype": "FP32", "shape": [1, len(values)]}
        tensor["parameters"] = {"binary_data_size": len(raw)}
        head = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        text = json.dumps(head).encode()
        lengths = {"Inference_Header_Content_Length": str(len(text))}
        reply, content = self.exchange("POST", f"/v2/models/{model}/infer", text + raw, **lengths)
        told = int(reply.headers["Inference-Header-Content-Length"])
        # The outputs' bytes stand behind the JSON, in its order.
        size = json.loads(content[:told])["outputs"][0]["parameters"]["binary_data_size"]
        return array.array("f", content[told : told + size])


def talk(address: str) -> None:
    client = Client(address)
    _, content = client.exchange("GET", "/v2/models/identity")
    for tensor in json.loads(content)["inputs"]:
        print("identity takes", tensor["name"], tensor["datatype"], tensor["shape"])
    print("as JSON: ", client.infer_json("identity", [1.0, 2.5, -3.0]))
    print("as bytes:", list(client.infer_binary("identity", array.array("f", [1.0, 2.5, -3.0]))))


def main() -> None:
    if len(sys.argv) > 1:
        return talk(sys.argv[1])
    with Server(ROOT / "models") as server:
        talk(server.url)


if __name__ == "__main__":
    main()
