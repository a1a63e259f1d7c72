"""Programs that are relocated again and again: C, spawning, redis, Java, node, PostgreSQL.

Usage: python -m analyzer.bench.relocated TIMES   (needs root, redis-server, java, node, PostgreSQL 15)

Each counts what it writes, or has a sum of its own, which must be right at the end.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.insert(0, str(TESTS))

from native.dumping import PROGRAMS, wait_for  # noqa: E402
from native.relocating import areas, build, children, relocate, target  # noqa: E402


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


if __name__ == "__main__":
    programs(int(sys.argv[1]))
