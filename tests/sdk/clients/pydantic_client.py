"""pydantic-ai. See every_client.py."""

from every_client import MODEL, of_async, play, weather
from openai import AsyncOpenAI
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Client:
    def __init__(self, api):
        self.kind = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[api]

    def agent(self, system=None, tools=False):
        model = self.kind(MODEL, provider=OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0)))
        return Agent(model, instructions=system, tools=[weather] if tools else [])

    def ask(self, prompt, system=None, picture=None, tools=False):
        asked = [prompt, BinaryContent(picture, media_type="image/png")] if picture else prompt
        return self.agent(system, tools).run_sync(asked).output

    def stream(self, prompt):
        return of_async(self.pieces(prompt))

    async def pieces(self, prompt):
        async with self.agent().run_stream(prompt) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                yield piece


play(Client)
