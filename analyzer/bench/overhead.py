"""What a dump costs those who wait for the process: latencies of a redis before, during and after dumps.

Usage: python -m analyzer.bench.overhead GIB ...   (needs redis-server, ptdump and root)

A client asks for a random key at fixed times; the latency of an answer counts from the time at which it was
due, so that a question that waited behind others waited too. During: 100 dumps, one behind the other; before
and after: some seconds without. Prints the table of the manual, in Markdown. Where other work runs, put
`chrt -r 10` in front: without it, the table shows the other work.
"""

import json
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

PTDUMP = Path(__file__).resolve().parents[2] / "dumps/build/ptdump"
RATE = 1000.0  # questions per second
VALUE = 1024  # bytes
DUMPS = 100
QUIET_SECONDS = 10.0
SHARES = (50, 99, 99.9)
WAYS = {"live": [], "--stop": ["--stop"]}


@contextmanager
def redis(gib, place):
    """(PID, path of its socket) of a server with so many GiB of values of 1 KiB."""
    path = place / "redis.sock"
    options = ["--port", "0", "--unixsocket", path, "--save", "", "--enable-debug-command", "yes"]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL, cwd=place)
    try:
        while not path.exists():
            time.sleep(0.05)
        with asking(path) as ask:
            ask("DEBUG", "POPULATE", str(keys_of(gib)), "k", str(VALUE))
        yield server.pid, path
    finally:
        server.kill()
        server.wait()


def keys_of(gib):
    return int(gib * (1 << 30)) // VALUE


@contextmanager
def asking(path):
    """ask(*words) -> the answer's first bytes; one question at a time."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))

        def ask(*words):
            parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            connection.sendall(f"*{len(words)}\r\n{parts}".encode())
            answer = connection.recv(4096)
            while (answer.startswith(b"$") and len(answer) < VALUE) or not answer.endswith(b"\r\n"):
                answer += connection.recv(4096)
            return answer

        yield ask


class Client(threading.Thread):
    """Asks at fixed times until .ends; .seen: (time due, latency) in s."""

    def __init__(self, path, keys):
        super().__init__()
        self.path, self.keys, self.ends, self.seen = path, keys, threading.Event(), []

    def run(self):
        due = time.perf_counter()
        with asking(self.path) as ask:
            while not self.ends.is_set():
                due += 1 / RATE
                time.sleep(max(due - time.perf_counter(), 0))
                answer = ask("GET", f"k:{random.randrange(self.keys)}")
                assert answer.startswith(b"$"), answer
                self.seen.append((due, time.perf_counter() - due))


def dumped(pid, place, options):
    """Facts of the dumps, one behind the other."""
    found = []
    for k in range(DUMPS):
        at = place / f"d{k}"
        subprocess.run([PTDUMP, "process", str(pid), "-o", at, "-q", *options], check=True)
        found.append(json.loads((at / "snapshot.json").read_text())["facts"])
        subprocess.run(["rm", "-r", at], check=True)
    return found


def measured(pid, path, gib, place, options):
    """([latencies in s before, during, after], facts of the dumps)"""
    client = Client(path, keys_of(gib))
    client.start()
    begun = time.perf_counter()
    time.sleep(QUIET_SECONDS)
    start = time.perf_counter()
    facts = dumped(pid, place, options)
    end = time.perf_counter()
    time.sleep(QUIET_SECONDS)
    client.ends.set()
    client.join()
    due, latency = np.array(client.seen).T
    edges = ((begun, start), (start, end), (end, np.inf))
    return [latency[(due >= a) & (due < b)] for a, b in edges], facts


def row(gib, way, phase, latency, facts):
    shares = [f"{np.percentile(latency, share) * 1e3:.2f}" for share in SHARES]
    tables, held = facts[0]["completeness"]["tables"], [one.get("stopped_s", 0) * 1e3 for one in facts]
    dump = [f"{tables:,}", f"{np.median(held):.1f} / {max(held):.1f}" if any(held) else "-"]
    dump = dump if phase == "during" else ["", ""]
    return [f"{gib} GiB", way, phase, f"{len(latency):,}", *shares, f"{latency.max() * 1e3:.1f}", *dump]


def main(sizes):
    head = ["values", "dump", "when", "questions", *(f"p{share}" for share in SHARES), "longest", "tables"]
    head.append("held: median / longest")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for gib in sizes:
        with TemporaryDirectory() as place, redis(gib, Path(place)) as (pid, path):
            for way, options in WAYS.items():
                phases, facts = measured(pid, path, gib, Path(place), options)
                for phase, latency in zip(("before", "during", "after"), phases, strict=True):
                    print("| " + " | ".join(row(gib, way, phase, latency, facts)) + " |", flush=True)


if __name__ == "__main__":
    main([float(word) if "." in word else int(word) for word in sys.argv[1:]] or [1])
