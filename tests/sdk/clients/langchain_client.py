"""langchain-openai. See every_client.py."""

from every_client import MODEL, PICTURE_URL, play, weather
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI


class Client:
    def __init__(self, api):
        self.model = ChatOpenAI(model=MODEL, max_retries=0, use_responses_api=api == "responses")

    def ask(self, prompt, system=None, picture=None, tools=False):
        content = prompt
        if picture:
            content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": PICTURE_URL}}]
        messages = [SystemMessage(system)] if system else []
        messages.append(HumanMessage(content))
        model = self.model.bind_tools([weather]) if tools else self.model
        return str(model.invoke(messages).text)

    def stream(self, prompt):
        stream = self.model.stream(prompt)
        try:
            for chunk in stream:
                if str(chunk.text):
                    yield str(chunk.text)
        finally:
            stream.close()


play(Client)
