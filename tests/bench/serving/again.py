"""Reads a stream of chat completions and writes each event again, as the agent server does: gate A1 measures beside it.

    again.py aiohttp|fastapi PORT MODEL_PORT

Both read the model by aiohttp's client, understand each delta, and write it as an event of their own.
"""

import json
import resource
import sys

import aiohttp

kind, port, model = sys.argv[1], int(sys.argv[2]), sys.argv[3]
UPSTREAM = f"http://127.0.0.1:{model}/v1/chat/completions"
NO_END = aiohttp.ClientTimeout(total=None)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def connect():
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=NO_END)


async def events(session, body):
    """The events of one answer, each written anew."""
    async with session.post(UPSTREAM, data=body) as answer:
        number = 0
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                yield b"data: [DONE]\n\n"
                return
            text = json.loads(line[6:])["choices"][0]["delta"].get("content")
            number += 1
            chunk = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1760000000,
                "model": "m",
                "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
            }
            yield f"id: {number}\ndata: {json.dumps(chunk)}\n\n".encode()


if kind == "aiohttp":
    from aiohttp import web

    async def answer(request):
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        async for event in events(request.app["session"], await request.read()):
            await response.write(event)
        return response

    async def make():
        app = web.Application()
        app["session"] = connect()
        app.router.add_post("/v1/chat/completions", answer)
        return app

    web.run_app(make(), host="127.0.0.1", port=port, print=None, access_log=None, backlog=4096)
else:
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import StreamingResponse

    app = FastAPI()
    state = {}

    @app.post("/v1/chat/completions")
    async def answer(request: Request):
        if "session" not in state:
            state["session"] = connect()
        body = await request.body()
        return StreamingResponse(events(state["session"], body), media_type="text/event-stream")

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False, backlog=4096)
