"""The `llm` package and its models. See every_client.py."""

import functools
import os
import pathlib
import tempfile

from every_client import MODEL, play, weather

home = tempfile.TemporaryDirectory()
os.environ["LLM_USER_PATH"] = home.name
pathlib.Path(home.name, "extra-openai-models.yaml").write_text(f"""
- model_id: {MODEL}
  model_name: {MODEL}
  api_base: {os.environ["OPENAI_BASE_URL"]}
  api_key_name: {MODEL}
  vision: true
  supports_tools: true
""")

import llm  # noqa: E402
import openai  # noqa: E402

# The package has no setting for retries.
openai.OpenAI = functools.partial(openai.OpenAI, max_retries=0)


class Client:
    stops_by_its_end = True

    def __init__(self, api):
        assert api == "chat"
        self.model = llm.get_model(MODEL)

    def ask(self, prompt, system=None, picture=None, tools=False):
        pictures = [llm.Attachment(type="image/png", content=picture)] if picture else []
        tools = [weather] if tools else []
        return self.model.prompt(prompt, system=system, attachments=pictures, tools=tools, stream=False).text()

    def stream(self, prompt):
        yield from self.model.prompt(prompt, stream=True)


play(Client)
