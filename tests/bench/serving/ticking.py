"""Streams the same kind of answer as the agent server with an agent of its own: gate A1 compares the two.

    ticking.py aiohttp|fastapi

Prints its port, and then answers line by line, as the processes of this benchmark do: `open`, `sent` and `cpu` with a
number; it obeys `go` and `pause`. While it runs, every stream gets ten events a second.
"""

import asyncio
import json
import os
import resource
import socket
import sys
import time

INTERVAL = 0.1
ids = "0123456789abcdefghijklmnopqrstuvwxyz"
kind = sys.argv[1]
counts = {"open": 0, "sent": 0}
running = asyncio.Event()
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)


def stamp():
    """The time in microseconds of the clock that all processes share, in seven digits and letters."""
    micros, digits = time.monotonic_ns() // 1000, []
    for _ in range(7):
        micros, digit = divmod(micros, 36)
        digits.append(ids[digit])
    return " w" + "".join(reversed(digits))


async def events():
    """The events of one answer, without an end."""
    number = counts["open"]
    counts["open"] += 1
    loop, event = asyncio.get_running_loop(), 0
    while True:
        await running.wait()
        # Streams do not tick all at one moment.
        await asyncio.sleep(number * 37 % 100 / 1000)
        at = loop.time()
        while running.is_set():
            await asyncio.sleep(at - loop.time())
            at += INTERVAL
            event += 1
            chunk = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1760000000,
                "model": "m",
                "choices": [{"index": 0, "delta": {"content": stamp()}, "finish_reason": None}],
            }
            yield f"id: {event}\ndata: {json.dumps(chunk)}\n\n".encode()
            counts["sent"] += 1


def answer_questions():
    try:
        questions = os.read(sys.stdin.fileno(), 4096).decode()
    except BlockingIOError:
        # The loop may wake up without a reason.
        return
    if not questions:
        sys.exit(0)
    for question in questions.split():
        if question == "go":
            running.set()
        elif question == "pause":
            running.clear()
        print(time.process_time() if question == "cpu" else counts.get(question, "yes"), flush=True)


def begin():
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), answer_questions)
    print(listener.getsockname()[1], flush=True)


if kind == "aiohttp":
    from aiohttp import web

    async def answer(request):
        json.loads(await request.read())
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        async for event in events():
            await response.write(event)
        return response

    async def make():
        begin()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        return app

    web.run_app(make(), sock=listener, print=None, access_log=None)
else:
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import StreamingResponse

    app = FastAPI(on_startup=[begin])

    @app.post("/v1/chat/completions")
    async def answer(request: Request):
        json.loads(await request.body())
        return StreamingResponse(events(), media_type="text/event-stream")

    uvicorn.run(app, fd=listener.fileno(), log_level="critical", access_log=False)
