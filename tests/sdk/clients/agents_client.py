"""OpenAI's agents for Python. See every_client.py."""

import agents
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from every_client import MODEL, PICTURE_URL, of_async, play, weather
from openai import AsyncOpenAI

agents.set_tracing_disabled(True)


class Client:
    def __init__(self, api):
        self.kind = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[api]

    def agent(self, system=None, tools=False):
        model = self.kind(MODEL, openai_client=AsyncOpenAI(max_retries=0))
        tools = [function_tool(weather)] if tools else []
        return Agent(name="Assistant", instructions=system, model=model, tools=tools)

    def ask(self, prompt, system=None, picture=None, tools=False):
        asked = prompt
        if picture:
            picture = {"type": "input_image", "image_url": PICTURE_URL, "detail": "auto"}
            asked = [{"role": "user", "content": [{"type": "input_text", "text": prompt}, picture]}]
        return Runner.run_sync(self.agent(system, tools), asked).final_output

    def stream(self, prompt):
        return of_async(self.pieces(prompt))

    async def pieces(self, prompt):
        result = Runner.run_streamed(self.agent(), prompt)
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    yield event.data.delta
        finally:
            result.cancel()


play(Client)
