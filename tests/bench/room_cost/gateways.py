"""The gateways that are measured, and the agent server behind them."""

import itertools
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .person import CACHE

HERMES = CACHE / "bench-hermes" / "bin" / "hermes"
WORDS = 20
# Seconds that an answer takes.
ANSWER = 0.5
RUN_FEATURES = ["run_submission", "run_events_sse", "run_status", "run_stop", "run_approval_response"]
runs, numbers = {}, itertools.count(1)


def answer(text):
    """What is answered to a question: its last word, and so many others."""
    return " ".join(["echo", text.split()[-1]] + ["word"] * (WORDS - 3) + ["end"])


class Upstream(BaseHTTPRequestHandler):
    """Answers with twenty words in half a second, as a stream or as a run of hermes-agent's API."""

    protocol_version = "HTTP/1.1"
    has_runs = False

    def do_GET(self):
        parts = self.path.split("/")
        if self.path == "/v1/capabilities" and self.has_runs:
            self.returns(200, {"features": {name: True for name in RUN_FEATURES}})
        elif self.path.startswith("/v1/runs/") and parts[-1] == "events" and parts[-2] in runs:
            self.begins_events()
            self.tells(parts[-2], runs[parts[-2]])
        elif self.path.startswith("/v1/runs/") and parts[-1] in runs:
            output = answer(runs[parts[-1]])
            self.returns(200, {"run_id": parts[-1], "status": "completed", "output": output})
        else:
            self.returns(404, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/runs":
            run = f"run_{next(numbers)}"
            runs[run] = text_of(asked["input"])
            self.returns(202, {"run_id": run, "status": "started"})
            return
        self.begins_events()
        for word in self.words(text_of(asked["messages"])):
            self.says({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
        self.says({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def words(self, text):
        for word in answer(text).split(" "):
            yield f"{word} "
            time.sleep(ANSWER / WORDS)

    def tells(self, run, text):
        for word in self.words(text):
            self.says({"event": "message.delta", "run_id": run, "delta": word})
        usage = {"input_tokens": 1, "output_tokens": WORDS}
        self.says({"event": "run.completed", "run_id": run, "output": answer(text), "usage": usage})

    def begins_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def says(self, event):
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def returns(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Runs(Upstream):
    has_runs = True


class Echo(Upstream):
    """Echoes the question in one piece: the agent's own time is not measured."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.begins_events()
        content = {"content": f"echo {text_of(asked['messages'])}"}
        self.says({"choices": [{"index": 0, "delta": content}]})
        self.says({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")


def text_of(asked):
    """The text of the last message, in every form that a gateway may send it."""
    while not isinstance(asked, str):
        asked = asked[-1] if isinstance(asked, list) else asked.get("content", asked.get("text"))
    return asked


def serve(kind):
    """Starts an agent server; returns its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def local(user):
    return user[1:].split(":")[0]


class Talaria:
    """Ours, with the agent server's streams."""

    upstream, name = "plain", "talaria"

    def __init__(self, binary, home, url, bot, person, agent):
        home.mkdir()
        (home / "talaria.yaml").write_text(
            f"gateway:\n  upstream: {self.upstream}\n"
            "platforms:\n  matrix:\n    rate: {per_second: 1000, burst: 1000}\n"
            "    limits: {per_minute: 10000, per_hour: 100000}\n"
        )
        self.command = [binary, "run"]
        self.environment = {
            "TALARIA_HOME": str(home), "GATEWAY_PROXY_URL": agent, "MATRIX_HOMESERVER": url,
            "MATRIX_USER_ID": bot, "MATRIX_PASSWORD": "pw-" + local(bot), "MATRIX_ALLOWED_USERS": person,
            "MATRIX_TRUST": "any", "PATH": os.environ["PATH"],
        }


class TalariaRuns(Talaria):
    """Ours, with runs."""

    upstream, name = "runs", "by runs"


class Hermes:
    """hermes-agent's own gateway for Matrix, before the same agent server."""

    name = "hermes"

    def __init__(self, _, home, url, bot, person, agent):
        home.mkdir()
        (home / "config.yaml").write_text("{}")
        self.command = [HERMES, "gateway", "run"]
        self.environment = {
            "HOME": str(home), "HERMES_HOME": str(home), "PATH": "/usr/bin:/bin",
            "GATEWAY_PROXY_URL": agent, "GATEWAY_PROXY_KEY": "none", "GATEWAY_ALLOW_ALL_USERS": "true",
            "MATRIX_HOMESERVER": url, "MATRIX_USER_ID": bot, "MATRIX_PASSWORD": "pw-" + local(bot),
            "MATRIX_DEVICE_ID": "HERMES", "MATRIX_E2EE_MODE": "required", "MATRIX_ALLOWED_USERS": person,
            "MATRIX_ALLOW_ALL_USERS": "true", "MATRIX_AUTO_THREAD": "false",
        }
