"""The protocol that every client speaks with the tests: one JSON object a line.

The client reads commands, {"id": 7, "do": "send", ...}, and answers each with {"id": 7, "ok": ...} or
{"id": 7, "error": "..."}. At any time it writes {"event": {...}}: every event of its rooms, as it reads it, in the
order of the room. When the input ends, so does the client.
"""

import asyncio
import json
import sys
import traceback


def tell(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def event(room, source, *, encrypted, readable=True):
    """Reports one event of a room. `source` is the decrypted event, or the encrypted one if it cannot be read."""
    tell({
        "event": {
            "room": room,
            "id": source.get("event_id"),
            "sender": source.get("sender"),
            "type": source.get("type"),
            "state_key": source.get("state_key"),
            "redacts": source.get("redacts") or source.get("content", {}).get("redacts"),
            "content": source.get("content", {}),
            "encrypted": encrypted,
            "readable": readable,
        }
    })


async def serve(client):
    """Runs commands one after the other: `do` names a method of the client."""
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        number, do = command.pop("id"), command.pop("do")
        try:
            tell({"id": number, "ok": await getattr(client, do)(**command)})
        except Exception as error:
            traceback.print_exc()
            tell({"id": number, "error": f"{type(error).__name__}: {error}"})


def run(client):
    asyncio.run(until_the_end(client))


async def until_the_end(client):
    await serve(client)
    # Ends at once: nobody reads the results of commands that still run.
    sys.stdout.flush()
    import os
    os._exit(0)
