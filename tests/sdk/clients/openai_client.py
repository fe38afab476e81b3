"""OpenAI's Python package, of today and 1.x. See every_client.py."""

import openai
from every_client import MODEL, PICTURE_URL, play


class Chat:
    client = openai.OpenAI(max_retries=0)

    def ask(self, prompt, system=None, picture=None, tools=False):
        content = prompt
        if picture:
            content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": PICTURE_URL}}]
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": content})
        options = {}
        if tools:
            function = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
            options["tools"] = [{"type": "function", "function": function}]
        answer = self.client.chat.completions.create(model=MODEL, messages=messages, **options)
        return answer.choices[0].message.content

    def stream(self, prompt):
        messages = [{"role": "user", "content": prompt}]
        with self.client.chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
            for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content


class Responses:
    client = openai.OpenAI(max_retries=0)

    def ask(self, prompt, system=None, picture=None, tools=False):
        content = prompt
        if picture:
            picture = {"type": "input_image", "image_url": PICTURE_URL, "detail": "auto"}
            content = [{"type": "input_text", "text": prompt}, picture]
        options = {}
        if system:
            options["instructions"] = system
        if tools:
            parameters = {"type": "object", "properties": {}}
            options["tools"] = [{"type": "function", "name": "weather", "parameters": parameters, "strict": False}]
        answer = self.client.responses.create(model=MODEL, input=[{"role": "user", "content": content}], **options)
        assert answer.status == "completed", answer
        return answer.output_text

    def stream(self, prompt):
        with self.client.responses.create(model=MODEL, input=prompt, stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta
                # The package passes this on like any other event; an app has to check for it.
                if event.type == "response.failed":
                    raise RuntimeError(event.response.error)


def client_of(api):
    return {"chat": Chat, "responses": Responses}[api]()


if __name__ == "__main__":
    play(client_of)
