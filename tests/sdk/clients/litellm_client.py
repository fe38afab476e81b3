"""LiteLLM's client. See every_client.py."""

import os

import litellm
from every_client import MODEL, PICTURE_URL, play

litellm.suppress_debug_info = True
SERVER = {
    "model": f"openai/{MODEL}",
    "api_base": os.environ["OPENAI_BASE_URL"],
    "api_key": os.environ["OPENAI_API_KEY"],
    "num_retries": 0,
    "max_retries": 0,
}
# Of a model that it does not know it makes a stream of the whole answer, for responses.
KNOWN = {"litellm_provider": "openai", "mode": "responses", "supports_native_streaming": True}
litellm.register_model({MODEL: KNOWN})
PARAMETERS = {"type": "object", "properties": {}}


class Chat:
    def ask(self, prompt, system=None, picture=None, tools=False):
        content = prompt
        if picture:
            content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": PICTURE_URL}}]
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": content})
        options = {}
        if tools:
            options["tools"] = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        return litellm.completion(messages=messages, **SERVER, **options).choices[0].message.content

    def stream(self, prompt):
        stream = litellm.completion(messages=[{"role": "user", "content": prompt}], stream=True, **SERVER)
        try:
            for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content
        finally:
            stream.completion_stream.close()


class Responses:
    def ask(self, prompt, system=None, picture=None, tools=False):
        content = prompt
        if picture:
            picture = {"type": "input_image", "image_url": PICTURE_URL, "detail": "auto"}
            content = [{"type": "input_text", "text": prompt}, picture]
        options = {"instructions": system} if system else {}
        if tools:
            options["tools"] = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}]
        answer = litellm.responses(input=[{"role": "user", "content": content}], **SERVER, **options)
        assert answer.status == "completed", answer
        return "".join(part.text for item in answer.output if item.type == "message" for part in item.content)

    def stream(self, prompt):
        stream = litellm.responses(input=prompt, stream=True, **SERVER)
        try:
            for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta
                if event.type == "response.failed":
                    raise RuntimeError(event.response.error)
        finally:
            stream.response.close()


play(lambda api: {"chat": Chat, "responses": Responses}[api]())
