"""FastAPI on uvicorn (uvloop, httptools, one worker, no access log), the model inside the handler.

Raw float32 bytes in and out: no JSON, no pydantic. The model runs in the event loop's thread;
FastAPI's thread pool would only add a hand-off where there is one core and one model thread.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI, Request, Response
from ort_model import from_environment

model = from_environment()
app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)


async def infer(request: Request) -> Response:
    rows = model.rows(await request.body())
    return Response(model.run(rows).tobytes(), media_type="application/octet-stream")


# A plain route: the decorator's would solve dependencies and inspect the return value each time.
app.add_route("/infer", infer, methods=["POST"])

if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
