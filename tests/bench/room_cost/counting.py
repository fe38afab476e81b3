"""Counts what a process costs: CPU, memory, system calls, and requests to the homeserver."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

PATIENCE = 60
# Waits for the disk; waking and waiting for threads; locks of SQLite on its files.
CALLS = ["fsync", "fdatasync", "futex", "fcntl"]


def memory(pid):
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = next(line.split()[1] for line in status if line.startswith("VmRSS"))
    return int(kib) / 1024


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def requests(log, bot):
    """Requests of the bot that Synapse has answered so far, by kind."""
    lines = log.read_text(errors="replace").splitlines()
    paths = (re.search(r'"[A-Z]+ (\S+) HTTP', line) for line in lines if bot in line and "Processed request" in line)
    return Counter(kind_of(path[1]) for path in paths if path)


def kind_of(path):
    parts = path.split("?")[0].split("/")
    known = ("sync", "send", "typing", "read_markers", "receipt", "event", "messages", "members", "keys", "sendToDevice")
    kind = next((part for part in parts[4:] if part in known), parts[-1])
    kind = "/".join(parts[-2:]) if kind == "keys" else kind
    return f"{kind} of others" if kind == "sync" and "not_senders" in path else kind


def calls(pid, during):
    """Counts system calls of a process while `during` runs: by name, and syncs by file. `None` without strace."""
    if not shutil.which("strace"):
        during()
        return None
    with tempfile.NamedTemporaryFile() as out:
        command = ["strace", "-f", "-y", "-qq", "-e", f"trace={','.join(CALLS)}", "-o", out.name, "-p", str(pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        during()
        tracer.send_signal(signal.SIGINT)
        tracer.wait(PATIENCE)
        # A call that another thread interrupts takes a second line, which has no bracket behind the name.
        said = re.findall(r"^\d+ +(\w+)\((?:\d+<([^>]*)>)?", Path(out.name).read_text(errors="replace"), re.M)
    if not said:
        return None
    syncs = Counter(Path(file).name for name, file in said if name in CALLS[:2])
    return {"syncs": syncs, "calls": Counter(name for name, _ in said)}
