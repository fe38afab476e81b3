"""The scenes that every Python client plays.

    NAME_client.py (chat | responses) SCENE

A client is an object with two ways to ask, in the words of its own package:

    ask(prompt, system=None, picture=None, tools=False)   the whole answer
    stream(prompt)                                        the pieces of the answer, as a generator

A failure is raised, under the package's own name for it; `problem` finds the server's report in it. A client with
`rewrites_errors` passes on the status of an error, and rewords the rest; one with `stops_by_its_end` can stop reading
only by ending its process. One with `judge_before` or `judge_midway` checks itself the error that it raised when the
model refused, or when an answer broke off in a stream.
"""

import asyncio
import base64
import sys

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE_BYTES = base64.b64decode(PICTURE)
PICTURE_URL = f"data:image/png;base64,{PICTURE}"
MODEL = "talaria"

# The server's texts for a model that refuses, and for one that breaks off.
REFUSED = "it did not understand the request"
CUT_SHORT = "The answer was cut short"


def weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"sunny in {city}"


class Problem:
    """The server's report of a failure, wherever the package keeps it."""

    def __init__(self, error):
        self.error, self.status, self.body, self.headers = error, None, None, {}
        seen = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            self.status = self.status or getattr(error, "status_code", None)
            body = getattr(error, "body", None)
            self.body = self.body or (body if isinstance(body, dict) else None)
            self.headers = self.headers or getattr(getattr(error, "response", None), "headers", None) or {}
            error = error.__cause__ or error.__context__
        self.body = (self.body or {}).get("error", self.body)

    def __repr__(self):
        return f"{self.status} {self.body} {self.error!r} {self.error}"


def problem(ask):
    try:
        answer = ask()
    except Exception as error:  # Each package has its own.
        return Problem(error)
    raise AssertionError(f"a failure passed for an answer: {answer!r}")


def rewrites_errors(client):
    return getattr(client, "rewrites_errors", False)


def chat(client):
    answer = client.ask("hi", system="Be brief")
    assert answer == "Hello", answer


def silence(client):
    answer = "".join(client.stream("hi"))
    assert answer == "Hello", answer


away_at_first = silence


def picture(client):
    answer = client.ask("what is this?", picture=PICTURE_BYTES)
    assert answer == "ok", answer


def error_before(client):
    found = problem(lambda: client.ask("hi"))
    assert found.status == 502, found
    assert REFUSED in str(found), found
    getattr(client, "judge_before", lambda error: None)(found.error)
    found = problem(lambda: list(client.stream("hi")))
    assert REFUSED in str(found), found


def error_midway(client):
    found = problem(lambda: client.ask("hi"))
    assert found.status == 502, found
    if found.body is not None and not rewrites_errors(client):
        assert found.body["partial"] == "Hel", found
    pieces = []
    found = problem(lambda: pieces.extend(client.stream("hi")) or pieces)
    # Some packages buffer before they pass text on; the text that they pass on must be a beginning of the answer.
    assert "Hel".startswith("".join(pieces)), (pieces, found)
    assert CUT_SHORT in str(found), found
    getattr(client, "judge_midway", lambda error: None)(found.error)


def unsupported(client):
    found = problem(lambda: client.ask("hi", tools=True))
    assert found.status == 400, found
    assert "tools" in str(found), found
    if found.body is not None and not rewrites_errors(client):
        assert (found.body["code"], found.body["param"]) == ("unsupported_parameter", "tools"), found


def unavailable(client):
    for status, after in [(503, "7"), (429, "9")]:
        found = problem(lambda: client.ask("hi"))
        assert found.status == status, found
        if found.headers and not rewrites_errors(client):
            assert found.headers["retry-after"] == after, found


def unreachable(client):
    found = problem(lambda: client.ask("hi"))
    assert found.status == 503, found


def cancel(client):
    stream = client.stream("hi")
    assert next(stream) == "Hel"
    if getattr(client, "stops_by_its_end", False):
        return
    stream.close()
    # The process stays, so that its end does not end the turn.
    sys.stdin.read()


def of_async(stream):
    """Turns an asynchronous generator into a synchronous one; closing the result closes the source."""
    loop, wanted, pieces = asyncio.new_event_loop(), asyncio.Queue(), asyncio.Queue()

    async def read():
        # One task for everything: some packages must end things in the task in which they began them.
        try:
            while await wanted.get():
                pieces.put_nowait((await anext(stream), None))
        except BaseException as error:
            pieces.put_nowait((None, error))
        finally:
            await stream.aclose()

    async def settle():
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    reading = loop.create_task(read())
    try:
        while True:
            wanted.put_nowait(True)
            piece, error = loop.run_until_complete(pieces.get())
            if isinstance(error, StopAsyncIteration):
                return
            if error is not None:
                raise error
            yield piece
    finally:
        wanted.put_nowait(False)
        loop.run_until_complete(reading)
        # Lets the package finish its own work for that.
        loop.run_until_complete(settle())


def play(client_of):
    """Plays the named scene with the client of the named API, both from the command line."""
    api, scene = sys.argv[1:]
    globals()[scene](client_of(api))
