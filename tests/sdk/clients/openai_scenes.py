"""Scenes of OpenAI's Python package. It finds the server and the key in its own variables.

    openai_scenes.py SCENE

Every answer is validated against the package's own types: a missing field or a wrong type is an error.
"""

import asyncio
import sys

import openai
from openai import AsyncOpenAI, OpenAI

PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MODEL = "talaria"

client = OpenAI(max_retries=0, _strict_response_validation=True)
# The chunks of a chat that report steps have more fields than the package knows.
lenient = OpenAI(max_retries=0)


def user(content):
    return [{"role": "user", "content": content}]


def raises(kind, ask):
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} should have been raised")


def models():
    assert [model.id for model in client.models.list()] == [MODEL]


def an_agent_with_tools():
    answer = lenient.chat.completions.create(model=MODEL, messages=user("what is to do?"))
    assert answer.choices[0].message.content.endswith("Buy milk."), answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == 20, answer.usage
    stream = lenient.chat.completions.create(model=MODEL, messages=user("what is to do?"), stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text.startswith("I look.") and text.endswith("Buy milk."), text


def a_chat():
    messages = [{"role": "system", "content": "Be brief"}, *user("hi")]
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello", answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == 5
    session = {"X-Hermes-Session-Id": raw.headers["x-hermes-session-id"]}
    again = client.chat.completions.create(model=MODEL, messages=user("and now?"), extra_headers=session)
    assert again.choices[0].message.content == "Again", again


def a_chat_as_it_grows():
    options = {"include_usage": True}
    stream = client.chat.completions.create(model=MODEL, messages=user("hi"), stream=True, stream_options=options)
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [5]
    with client.chat.completions.stream(model=MODEL, messages=user("hi")) as stream:
        names = {event.type for event in stream}
        assert {"content.delta", "content.done"} <= names, names
        assert stream.get_final_completion().choices[0].message.content == "Hello"


def responses():
    first = client.responses.create(model=MODEL, input="1", instructions="Be brief", metadata={"of": "a test"})
    assert (first.output_text, first.status, first.usage.total_tokens) == ("one", "completed", 5), first
    assert client.responses.retrieve(first.id) == first
    second = client.responses.create(model=MODEL, input=user("2"), previous_response_id=first.id)
    assert (second.output_text, second.previous_response_id) == ("two", first.id), second
    third = client.responses.create(model=MODEL, input="3", previous_response_id=first.id)
    assert third.output_text == "three", third
    client.responses.delete(first.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(first.id))
    gone = raises(openai.NotFoundError, lambda: client.responses.create(input="4", previous_response_id=first.id))
    assert (gone.code, gone.param) == ("previous_response_not_found", "previous_response_id"), gone
    hidden = client.responses.create(model=MODEL, input="5", store=False)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(hidden.id))
    later = client.responses.create(model=MODEL, input="6", background=True)
    with client.responses.stream(response_id=later.id, starting_after=0) as stream:
        assert stream.get_final_response().output_text == "ok"


def responses_as_they_grow():
    events = list(client.responses.create(model=MODEL, input="hi", stream=True))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed"), events
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers)), numbers
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello"
    assert events[-1].response.output_text == "Hello"
    replayed = list(client.responses.retrieve(events[0].response.id, stream=True))
    assert replayed[-1] == events[-1]
    rest = list(client.responses.retrieve(events[0].response.id, stream=True, starting_after=numbers[-2]))
    assert rest == events[-1:], rest
    with client.responses.stream(model=MODEL, input="hi") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "Hello"


def pictures():
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    assert client.chat.completions.create(model=MODEL, messages=user(parts)).choices[0].message.content == "ok"
    parts = [
        {"type": "input_text", "text": "what is this?"},
        {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
    ]
    assert client.responses.create(model=MODEL, input=user(parts)).output_text == "ok"


def errors():
    stranger = OpenAI(api_key="not-the-key-of-this-server", max_retries=0)
    error = raises(openai.AuthenticationError, stranger.models.list)
    assert (error.status_code, error.code) == (401, "invalid_api_key"), error
    error = raises(openai.NotFoundError, lambda: client.responses.retrieve("resp_0"))
    assert error.code == "response_not_found", error
    error = raises(openai.NotFoundError, lambda: client.get("/nothing", cast_to=object))
    assert error.code == "not_found", error
    part = user([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}])
    error = raises(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=part))
    assert error.param == "messages[0].content", error
    item = [{"type": "computer_call_output", "call_id": "1", "output": {"type": "computer_screenshot"}}]
    error = raises(openai.BadRequestError, lambda: client.responses.create(model=MODEL, input=item))
    assert error.param == "input[0].type", error
    key = {"Idempotency-Key": "once"}
    client.responses.create(model=MODEL, input="1", extra_headers=key)
    other = lambda: client.responses.create(model=MODEL, input="2", extra_headers=key)  # noqa: E731
    assert raises(openai.UnprocessableEntityError, other).code == "idempotency_key_reused"


def a_server_that_is_busy():
    stream = iter(client.chat.completions.create(model=MODEL, messages=user("hi"), stream=True))
    while next(stream).choices[0].delta.content != "Hel":
        pass
    error = raises(openai.RateLimitError, lambda: client.chat.completions.create(model=MODEL, messages=user("hi")))
    assert error.code == "rate_limit_exceeded" and int(error.response.headers["retry-after"]) > 0, error
    print("turned away", flush=True)
    rest = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(rest) == "lo"
    patient = OpenAI(max_retries=5)
    answer = patient.chat.completions.create(model=MODEL, messages=user("hi"))
    assert answer.choices[0].message.content == "ok"


def steps():
    chunks = list(lenient.chat.completions.create(model=MODEL, messages=user("hi"), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
    with lenient.chat.completions.stream(model=MODEL, messages=user("hi")) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == "Hello"
    events = list(client.responses.create(model=MODEL, input="hi", stream=True))
    steps = [event.type for event in events if event.type.startswith("response.mcp_call.")]
    assert steps == ["response.mcp_call.in_progress", "response.mcp_call.completed"], steps
    assert [item.type for item in events[-1].response.output] == ["reasoning", "mcp_call", "message"]
    with client.responses.stream(model=MODEL, input="hi") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "Hello"


def a_model_that_fails():
    # A failed response is a server error, and says that it must not be repeated automatically.
    try:
        answer = client.responses.create(model=MODEL, input="hi")
    except openai.APIStatusError as error:
        assert (error.status_code, error.response.headers["x-should-retry"]) == (502, "false"), error
    else:
        raise AssertionError(answer)
    events = list(client.responses.create(model=MODEL, input="hi", stream=True))
    assert (events[-1].type, events[-1].response.error.code) == ("response.failed", "server_error"), events


def many_at_once():
    async def all_of_them():
        async with AsyncOpenAI(max_retries=0) as many:

            async def one():
                stream = await many.chat.completions.create(model=MODEL, messages=user("hi"), stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

            return await asyncio.gather(*[one() for _ in range(50)])

    assert asyncio.run(all_of_them()) == ["ok"] * 50


globals()[sys.argv[1]]()
