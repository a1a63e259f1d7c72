"""What a dump costs those who wait for the process: latencies of a server before, during and after dumps.

Usage: python -m analyzer.bench.overhead [SERVER:]GIB ...   (needs redis-server or memcached, ptdump and root)

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
MANY = 1000  # keys sent together
SHARES = (50, 99, 99.9)
WAYS = {"live": [], "--stop": ["--stop"]}


class Redis:
    """How it is started with a socket at a path and so many keys, filled, and asked for one."""

    @staticmethod
    def command(path, keys):
        return [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            path,
            "--save",
            "",
            "--enable-debug-command",
            "yes",
        ]

    @staticmethod
    def fill(connection, keys):
        answered(connection, f"DEBUG POPULATE {keys} k {VALUE}\r\n".encode(), b"+OK\r\n")

    @staticmethod
    def ask(connection, key):
        assert answered(connection, f"GET k:{key}\r\n".encode(), b"\r\n", VALUE).startswith(b"$1024")


class Memcached:
    @staticmethod
    def command(path, keys):
        room = 2 * keys * VALUE >> 20
        return ["memcached", "-u", "root", "-s", path, "-m", str(room)]

    @staticmethod
    def fill(connection, keys):
        value = b"v" * VALUE + b"\r\n"
        for start in range(0, keys, MANY):
            names = range(start, min(start + MANY, keys))
            connection.sendall(
                b"".join(b"set k:%d 0 0 %d noreply\r\n%s" % (name, VALUE, value) for name in names)
            )
        answered(connection, b"version\r\n", b"\r\n")

    @staticmethod
    def ask(connection, key):
        assert answered(connection, f"get k:{key}\r\n".encode(), b"END\r\n").startswith(b"VALUE")


SERVERS = {"redis": Redis, "memcached": Memcached}


@contextmanager
def serving(server, gib, place):
    """(PID, path of its socket) of a server with so many GiB of values of 1 KiB."""
    path, keys = place / "socket", keys_of(gib)
    process = subprocess.Popen(server.command(path, keys), stdout=subprocess.DEVNULL, cwd=place)
    try:
        while not path.exists():
            time.sleep(0.05)
        with connected(path) as connection:
            server.fill(connection, keys)
        yield process.pid, path
    finally:
        process.kill()
        process.wait()


def keys_of(gib):
    return int(gib * (1 << 30)) // VALUE


@contextmanager
def connected(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        yield connection


def answered(connection, question, end, least=0):
    """The whole answer to a question: at least so many bytes, the last of which are `end`."""
    connection.sendall(question)
    answer = connection.recv(4096)
    while len(answer) < least or not answer.endswith(end):
        answer += connection.recv(4096)
    return answer


class Client(threading.Thread):
    """Asks at fixed times until .ends; .seen: (time due, latency) in s."""

    def __init__(self, server, path, keys):
        super().__init__()
        self.server, self.path, self.keys = server, path, keys
        self.ends, self.seen = threading.Event(), []

    def run(self):
        due = time.perf_counter()
        with connected(self.path) as connection:
            while not self.ends.is_set():
                due += 1 / RATE
                time.sleep(max(due - time.perf_counter(), 0))
                self.server.ask(connection, random.randrange(self.keys))
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


def measured(server, pid, path, gib, place, options):
    """([latencies in s before, during, after], facts of the dumps)"""
    client = Client(server, path, keys_of(gib))
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


def row(name, gib, way, phase, latency, facts):
    shares = [f"{np.percentile(latency, share) * 1e3:.2f}" for share in SHARES]
    tables, held = facts[0]["completeness"]["tables"], [one.get("stopped_s", 0) * 1e3 for one in facts]
    dump = [f"{tables:,}", f"{np.median(held):.1f} / {max(held):.1f}" if any(held) else "-"]
    dump = dump if phase == "during" else ["", ""]
    return [
        f"{name}, {gib:g} GiB",
        way,
        phase,
        f"{len(latency):,}",
        *shares,
        f"{latency.max() * 1e3:.1f}",
        *dump,
    ]


def main(asked):
    """asked: [(server, GiB of values)]"""
    head = ["values", "dump", "when", "questions", *(f"p{share}" for share in SHARES), "longest", "tables"]
    head.append("held: median / longest")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name, gib in asked:
        server = SERVERS[name]
        with TemporaryDirectory() as place, serving(server, gib, Path(place)) as (pid, path):
            for way, options in WAYS.items():
                phases, facts = measured(server, pid, path, gib, Path(place), options)
                for phase, latency in zip(("before", "during", "after"), phases, strict=True):
                    print("| " + " | ".join(row(name, gib, way, phase, latency, facts)) + " |", flush=True)


if __name__ == "__main__":
    words = [word.rpartition(":") for word in sys.argv[1:] or ["redis:1"]]
    main([(name or "redis", float(gib)) for name, _, gib in words])
