"""LiteLLM's client. See every_client.py.

Users write `openai/…` for a server like OpenAI's: those are `chat` and `responses`. `compatible` is the provider for
vLLM and the like, where LiteLLM reads the stream itself instead of with OpenAI's package.
"""

import os

import litellm
from every_client import MODEL, PICTURE_URL, of_async, play, problem

litellm.suppress_debug_info = True
SERVER = {
    "api_base": os.environ["OPENAI_BASE_URL"],
    "api_key": os.environ["OPENAI_API_KEY"],
    "num_retries": 0,
    "max_retries": 0,
}
PARAMETERS = {"type": "object", "properties": {}}


def judge_before(client, error):
    """Checks the errors of a refused question: refused by the model, and by the server for the key."""
    assert type(error) is litellm.BadGatewayError, error
    key, SERVER["api_key"] = SERVER["api_key"], "not the key"
    found = problem(lambda: client.ask("hi")).error
    SERVER["api_key"] = key
    assert type(found) is litellm.AuthenticationError and "Incorrect API key provided" in str(found), found


def judge_midway(error, status, kind):
    """Checks the errors of an answer that breaks off: the exception to catch, and the original one with the reason."""
    assert type(error) is litellm.exceptions.MidStreamFallbackError, error
    assert (error.status_code, type(error.original_exception)) == (status, kind), error


class Chat:
    model = f"openai/{MODEL}"
    judge_before = judge_before

    def judge_midway(self, error):
        # OpenAI's package does not pass on the status of an error in a stream.
        judge_midway(error, 500, litellm.APIConnectionError)

    def ask(self, prompt, system=None, picture=None, tools=False):
        content = prompt
        if picture:
            content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": PICTURE_URL}}]
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": content})
        options = {}
        if tools:
            options["tools"] = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        return litellm.completion(model=self.model, messages=messages, **SERVER, **options).choices[0].message.content

    def stream(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        stream = litellm.completion(model=self.model, messages=messages, stream=True, **SERVER)
        try:
            for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content
        finally:
            stream.completion_stream.close()


class Compatible(Chat):
    model = f"hosted_vllm/{MODEL}"

    def judge_midway(self, error):
        judge_midway(error, 502, litellm.BadGatewayError)

    def stream(self, prompt):
        # Only in this way can the reader stop.
        return of_async(self.pieces(prompt))

    async def pieces(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        stream = await litellm.acompletion(model=self.model, messages=messages, stream=True, **SERVER)
        try:
            async for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content
        finally:
            await stream.aclose()


class Responses:
    model = f"openai/{MODEL}"
    judge_before = judge_before

    def __init__(self):
        # For a model that it does not know, LiteLLM makes a stream of the whole answer. Not for chat: there it would
        # request responses as well.
        known = {"litellm_provider": "openai", "mode": "responses", "supports_native_streaming": True}
        litellm.register_model({MODEL: known})

    def judge_midway(self, error):
        judge_midway(error, 500, litellm.InternalServerError)

    def ask(self, prompt, system=None, picture=None, tools=False):
        content = prompt
        if picture:
            picture = {"type": "input_image", "image_url": PICTURE_URL, "detail": "auto"}
            content = [{"type": "input_text", "text": prompt}, picture]
        options = {"instructions": system} if system else {}
        if tools:
            options["tools"] = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}]
        asked = [{"role": "user", "content": content}]
        answer = litellm.responses(model=self.model, input=asked, **SERVER, **options)
        assert answer.status == "completed", answer
        return "".join(part.text for item in answer.output if item.type == "message" for part in item.content)

    def stream(self, prompt):
        stream = litellm.responses(model=self.model, input=prompt, stream=True, **SERVER)
        try:
            for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta
                if event.type == "response.failed":
                    raise RuntimeError(event.response.error)
        finally:
            stream.response.close()


play(lambda api: {"chat": Chat, "responses": Responses, "compatible": Compatible}[api]())
