"""Leaf tables moved again and again, and by tools that are killed: python -m native.relocating, in tests/."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from native.dumping import PROGRAMS, REPOSITORY, make, wait_for

TESTED = REPOSITORY / "dumps/build/ptrelocate-tested"
DEATHS = range(1, 10)  # POINT()s of dumps/chain.c
AREA = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ")
KEPT = ("VmFlags:", "Locked:", "AnonHugePages:")


def build(where):
    """The program whose memory is moved, and the tool that dies where it is told to."""
    make("dumps", "build/ptrelocate-tested")
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", where / "relocate_target"]
    subprocess.run([*command, PROGRAMS / "relocate_target.c"], check=True)
    return where / "relocate_target"


class Target:
    """A relocate_target that is ready; words: of its first line, {name: value}."""

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        self.words = self.said()

    def said(self):
        return dict(word.split("=") for word in self.process.stdout.readline().split() if "=" in word)

    def ask(self):
        self.process.stdin.write("?")
        self.process.stdin.flush()
        return self.said()

    def counts(self):
        """Whatever it added is there, and nothing is damaged."""
        told = self.ask()
        assert told["added"] == told["found"] and told["damaged"] == told["spoiled"] == "0", told
        return int(told["added"])


@contextmanager
def target(program, *words, first=()):
    process = subprocess.Popen(
        [*first, program, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Target(process)
    finally:
        process.kill()
        process.communicate()


def areas(pid):
    """{start: lines} of its areas: addresses, rights, name, flags, policy and what is in it."""
    found, lines = {}, []
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if AREA.match(line):
            lines = found[int(line.split("-")[0], 16)] = [line]
        elif line.startswith(KEPT):
            lines.append(line)
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        address, policy, *_ = line.split()
        if int(address, 16) in found:  # it may change between both files
            found[int(address, 16)].append(policy)
    return found


def threads(pid):
    """[(whether it is stopped, its tracer, blocked signals)] of its threads, in order."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        text = (task / "status").read_text()
        [(state, tracer, blocked)] = re.findall(
            r"State:\t(.)[\s\S]*TracerPid:\t(\d+)[\s\S]*SigBlk:\t(\S+)", text
        )
        found.append((state in "Tt", tracer, blocked))
    return sorted(found)


def children(pid):
    return [Path(f"/proc/{pid}/task/{task}/children").read_text() for task in os.listdir(f"/proc/{pid}/task")]


def relocate(pid, *options, die_at=0, gap=0, refusals=0):
    """The finished tool, and what it said: a plan, and a tally where it got to the end."""
    settings = {"PT_DIE_AT": str(die_at), "PT_GAP": str(gap), "PT_REFUSALS": str(refusals)}
    command = [TESTED, *map(str, options), str(pid)]
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, timeout=60, check=False
    )
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def as_before(pid, before, seconds=10.0):
    """Whether its areas and threads are, soon: what the tool began ends without it."""
    return wait_for(lambda: (areas(pid), threads(pid)) == before, seconds)


# A campaign outside the suite.


def killed_at_random(one, times, chance, latest=0.05):
    """Tools killed -9, the latest after so many seconds; how many met the memory away."""
    before, away = (areas(one.pid), threads(one.pid)), 0
    largest = max(before[0], key=lambda start: int(before[0][start][0].split()[0].split("-")[1], 16) - start)
    for k in range(times):
        command = [TESTED, "--yes", str(one.pid)]
        gap = {"PT_GAP": str(chance.choice((0, 20000)))}
        tool = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | gap
        )
        time.sleep(chance.uniform(0, latest))
        tool.kill()
        away += f"{largest:x}-" not in Path(f"/proc/{one.pid}/maps").read_text()
        tool.wait()
        assert as_before(one.pid, before), (
            k,
            set(map(str, areas(one.pid).items())) ^ set(map(str, before[0].items())),
        )
        if k % 25 == 24:
            one.counts()
    return away


def measured(pid, times):
    """Relocates `times` times; a line on what that took."""
    stops, late, lost, longest, held, early, codes = 0, 0, 0, 0, 0, 0, Counter()
    for _ in range(times):
        done, (_, *tally) = relocate(pid, "--yes")
        codes[done.returncode] += 1
        for told in tally:
            stops, late, lost = stops + told["stops"], late + told["late"], lost + told["lost"]
            longest, held = max(longest, told["longest_us"]), max(held, told["longest_held_us"])
            early += told["interrupted"]
    return (
        f"{times} relocations ended with {dict(codes)}, {stops} stops, {late} longer than asked, "
        f"{lost} attempts lost, longest {longest} us, borrowed thread {held} us, {early} waits cut short"
    )


def of_threads(place, times, mode="write", mebibytes=256):
    with target(place / "relocate_target", mode, mebibytes, 4) as one:
        one.counts()
        before = areas(one.pid)
        line = measured(one.pid, times)
        kept = one.counts()
        assert mode == "spawn" or wait_for(lambda: areas(one.pid) == before, 5.0)
    return f"{line}; {kept:,} increments kept"


def of_command(times, *command):
    """A program that says "ready", and at a byte whether all was kept."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        line = measured(process.pid, times)
        told = process.communicate("?")[0].strip()
        assert told.startswith("kept"), told
    return f"{line}; {told}"


def of_redis(place, times):
    port, options = "7799", ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]
    with subprocess.Popen(
        ["redis-server", "--port", port, "--dir", place, *options], stdout=subprocess.DEVNULL
    ) as server:

        def ask(*words):
            return subprocess.run(
                ["redis-cli", "-p", port, *words], capture_output=True, text=True
            ).stdout.strip()

        assert wait_for(lambda: ask("ping") == "PONG", 10)
        ask("debug", "populate", "500000", "key", "200")
        before = ask("debug", "digest")
        load = [
            "redis-benchmark",
            "-p",
            port,
            "-n",
            "100000000",
            "-c",
            "20",
            "-r",
            "20000",
            "-t",
            "set,get",
            "-q",
        ]
        with subprocess.Popen([*load, "--dbnum", "1"], stdout=subprocess.DEVNULL) as clients:
            line = measured(server.pid, times)
            answers = ask("info", "commandstats")
            clients.kill()
        ask("-n", "1", "flushdb")
        assert ask("debug", "digest") == before != ""
        server.terminate()
    calls = sum(map(int, re.findall(r"cmdstat_[sg]et:calls=(\d+)", answers)))
    return f"{line}; {calls:,} calls meanwhile, all 500,000 values as before"


def of_postgres(place, times):
    """pgbench keeps three sums of what it added: they must be the same. Backends are single threads."""
    os.chmod(place, 0o755)
    where = place / "data"
    where.mkdir()
    shutil.chown(where, "postgres")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    bench = ["-h", str(where), "-p", "7798"]

    def do(*command):
        done = subprocess.run([*as_user, *command], capture_output=True, text=True, cwd=where, check=False)
        assert done.returncode == 0, done
        return done.stdout.strip()

    do("/usr/lib/postgresql/15/bin/initdb", "-D", where, "-A", "trust")
    serve = [
        "/usr/lib/postgresql/15/bin/postgres",
        "-D",
        where,
        *bench[2:],
        "-k",
        where,
        "-c",
        "listen_addresses=",
    ]
    with subprocess.Popen([*as_user, *serve], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        assert wait_for(
            lambda: (
                subprocess.run(
                    [*as_user, "psql", *bench, "-c", "select 1", "postgres"], capture_output=True
                ).returncode
                == 0
            ),
            20,
        )
        do("pgbench", *bench, "-i", "-s", "5", "-q", "postgres")
        sort = where / "sort.sql"
        sort.write_text(
            "set work_mem = '64MB'; "
            "select count(*) from (select i from generate_series(1, 200000) i order by -i) x;"
        )
        load = [
            *as_user,
            "pgbench",
            *bench,
            "-c",
            "4",
            "-T",
            "3600",
            "-b",
            "tpcb-like",
            "-f",
            str(sort),
            "postgres",
        ]
        with subprocess.Popen(load, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as clients:
            assert wait_for(lambda: len(children(server.pid)[0].split()) >= 9, 10)
            backends = [int(pid) for pid in children(server.pid)[0].split()]
            backends = [pid for pid in backends if b"[local]" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            lines = [measured(pid, max(times // len(backends), 1)) for pid in backends]
            clients.send_signal(signal.SIGINT)
            said = "".join(clients.communicate())
        added = "(select sum(delta) from pgbench_history)"
        sums = f"select (select sum(abalance) from pgbench_accounts) = {added}, count(*) from pgbench_history"
        told = do("psql", *bench, "-At", "-c", sums, "postgres")
        assert told.startswith("t|") and "ERROR" not in said, (told, said)
        server.terminate()
    return "\n  ".join([*lines, f"sums agree over {told[2:]} transactions"])


def programs(times):
    with TemporaryDirectory() as where:
        place = Path(where)
        build(place)
        runs = {
            "C, four threads": lambda: of_threads(place, times),
            "C, two threads that spawn": lambda: of_threads(place, times, "spawn", 64),
            "redis": lambda: of_redis(place, times),
            "Java": lambda: of_command(times, "java", "-Xmx512m", PROGRAMS / "Adds.java"),
            "node": lambda: of_command(times, "node", PROGRAMS / "adds.js"),
            "PostgreSQL": lambda: of_postgres(place, times),
        }
        for name, ran in runs.items():
            print(f"{name}: {ran()}", flush=True)


def main(kills, moves):
    with TemporaryDirectory() as place:
        build(Path(place))
        with target(Path(place) / "relocate_target", "write", 256, 4) as one:
            one.counts()
            away = killed_at_random(one, kills, random.Random(1))
            print(
                f"{kills} kills at random, memory away at {away}; {one.counts():,} increments kept",
                flush=True,
            )
    programs(moves)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
