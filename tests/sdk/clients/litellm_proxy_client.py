"""LiteLLM's proxy between OpenAI's package and the server. See every_client.py."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from every_client import MODEL, play

KEY = "sk-a-key-of-the-proxy"


def configuration():
    params = {
        "model": f"openai/{MODEL}",
        "api_base": os.environ["OPENAI_BASE_URL"],
        "api_key": os.environ["OPENAI_API_KEY"],
        "max_retries": 0,
    }
    return {
        "model_list": [{"model_name": MODEL, "litellm_params": params}],
        # A deployment that failed once is used again all the same: the next scene is about something else.
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "general_settings": {"master_key": KEY},
    }


def start(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    config = pathlib.Path(folder, "config.yaml")
    config.write_text(json.dumps(configuration()))
    program = pathlib.Path(sys.executable).with_name("litellm")
    log = open(pathlib.Path(folder, "log"), "w")
    command = [program, "--config", config, "--host", "127.0.0.1", "--port", str(port)]
    proxy = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    while proxy.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/health/liveliness", timeout=5).read()
            return proxy, address
        except OSError:
            time.sleep(0.2)
    raise AssertionError(pathlib.Path(folder, "log").read_text())


with tempfile.TemporaryDirectory() as folder:
    proxy, address = start(folder)
    try:
        os.environ.update(OPENAI_BASE_URL=f"{address}/v1", OPENAI_API_KEY=KEY)
        import openai_client

        def client_of(api):
            client = openai_client.client_of(api)
            client.rewrites_errors = True
            return client

        play(client_of)
    except BaseException:
        print(pathlib.Path(folder, "log").read_text()[-20000:], file=sys.stderr)
        raise
    finally:
        proxy.terminate()
        proxy.wait()
