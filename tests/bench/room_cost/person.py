"""A person in Matrix rooms, played by matrix-nio in a process of its own, and the homeserver's API."""

import json
import os
import queue
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "talaria-tests"
PATIENCE = 120
ENCRYPTION = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}


class Person:
    """Sends messages, and remembers when each text of each sender was first read."""

    def __init__(self, url, name):
        python = CACHE / "clients" / "bin" / "python"
        self.process = subprocess.Popen(
            [python, TESTS / "live" / "clients" / "nio_client.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        self.answers, self.seen, self.number = queue.Queue(), {}, 0
        self.changed = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()
        self.token = self.does("login", homeserver=url, user=name, password=f"pw-{name}")["token"]

    def listen(self):
        for line in self.process.stdout:
            said = json.loads(line)
            if "event" not in said:
                self.answers.put(said)
                continue
            content = said["event"]["content"]
            text = content.get("m.new_content", content).get("body") or ""
            with self.changed:
                self.seen.setdefault((said["event"]["sender"], text.strip()), time.monotonic())
                self.changed.notify_all()

    def does(self, do, **what):
        self.number += 1
        self.process.stdin.write(json.dumps({"id": self.number, "do": do, **what}) + "\n")
        self.process.stdin.flush()
        answer = self.answers.get(timeout=PATIENCE)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def says(self, room, text):
        began = time.monotonic()
        self.does("send", room=room, type="m.room.message", content={"msgtype": "m.text", "body": text})
        return began

    def reads(self, sender, text, patience=PATIENCE):
        """Returns when this was first read."""
        with self.changed:
            if not self.changed.wait_for(lambda: (sender, text) in self.seen, patience):
                raise TimeoutError(f"{text!r} of {sender} never came; the last ones are {list(self.seen)[-3:]}")
            return self.seen[(sender, text)]

    def first_after(self, sender, began):
        """Returns when the first text of this sender since then was read."""
        with self.changed:
            return min(at for (who, _), at in self.seen.items() if who == sender and at >= began)


def ask(url, path, body=None, token=None):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/_matrix/client/v3{path}", data, headers)
    return json.load(urllib.request.urlopen(request, timeout=PATIENCE))


def register(url, name):
    auth = {"type": "m.login.dummy"}
    return ask(url, "/register", {"username": name, "password": f"pw-{name}", "auth": auth})["user_id"]


def new_room(url, person, bot):
    """Makes an encrypted room and waits until the bot is in it."""
    body = {"preset": "private_chat", "is_direct": True, "invite": [bot], "initial_state": [ENCRYPTION]}
    room = ask(url, "/createRoom", body, person.token)["room_id"]
    until = time.monotonic() + PATIENCE
    members = f"/rooms/{urllib.parse.quote(room)}/joined_members"
    while bot not in ask(url, members, token=person.token)["joined"] and time.monotonic() < until:
        time.sleep(0.05)
    # Her client has to know that the bot is in, or it encrypts for herself alone.
    time.sleep(0.5)
    return room


def start_synapse(folder):
    """Starts Synapse with a log of its requests; returns the process, its address and the log."""
    process = subprocess.Popen(
        [TESTS / "live" / "synapse", Path(folder, "synapse"), "--log-requests"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    url = json.loads(process.stdout.readline())["url"]
    return process, url, Path(folder, "synapse", "synapse.log")
