"""Page size: programs with 4 KiB and 2 MiB pages in turns, beside what `whatif -p thp` predicts of a trace.

Usage: python -m analyzer.bench.bench_pages measure|trace|predict|write [PROGRAM ...]   (as root)

measure  three `trial --pages` of each, and page walks before and after it, into pages.csv here
trace    small traces, into TRACES
predict  the table, from both; write: into the manual and the README, between their marks
Others' programs come from Debian's packages, installed when root. One that is missing, or ends too early, is
left out, and why is said.
"""

import csv
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import median

import numpy as np

import ptanalyze as pt
from ptanalyze.core.errors import PtanalyzeError
from ptanalyze_host import machine_file
from ptanalyze_host.dump import descendants
from ptanalyze_host.node_latency import added_by_walks, measure_cached, measure_pages
from ptanalyze_pages.trial import How, record, try_pages

HERE = Path(__file__).parent
ROOT, FILE = HERE.parents[1], HERE / "pages.csv"
TRACES = Path(tempfile.gettempdir()) / "page-size-traces"
PTANALYZE = [sys.executable, "-m", "ptanalyze"]
TRIALS, SECONDS = 3, 20  # of a program; of each of them
REGION = 3  # seconds of a traced, slower run
PATIENCE = 900  # seconds until a program is ready, under the tracer, too
GAIN = 0.05  # a smaller effect has no error in percent
TURNS = 16  # of `measure_pages`, before a trial and after it
OWN = "this VM, as it was then"
MACHINES = (OWN, "emerald-rapids")
PORT = "7797"
SMALLEST = {}


@dataclass(frozen=True)
class Program:
    """One line of the table. DIR, MIB, N and PORT stand for its directory, size, items and port.

    command  what runs; what it prints before its work goes on for ever: `ready`
    mib      of data, of which the trace has 1/less; items: of a MiB
    needs    {file: Debian's package}
    before   shell command that prepares DIR; fill: that fills a server, load: that keeps it busy
    figure   shell command that prints the work done so far; default: bytes of output
    text     of its standard input, or of DIR/text; user: that runs it
    """

    command: str
    mib: int
    ours: bool = False
    less: int = 1
    items: float = 0
    needs: dict = field(default_factory=dict)
    before: str = ""
    fill: str = ""
    load: str = ""
    figure: str = "stat -c %s DIR/out"
    ready: str = "ready"
    text: str = ""
    user: str | None = None

    def put(self, words, place, less=1):
        """Words with the sizes of a run of 1/less."""
        mib = self.mib // less
        stands = {"DIR": str(place), "MIB": str(mib), "N": str(int(self.items * mib)), "PORT": PORT}
        return re.sub(rf"\b({'|'.join(stands)})\b", lambda found: stands[found[0]], words)


MEMCACHED = """
import random, socket, sys
server = socket.create_connection(("127.0.0.1", PORT))
if sys.argv[1] == "fill":
    for i in range(N):
        server.sendall(b"set k%d 0 0 100 noreply\\r\\n%0100d\\r\\n" % (i, i))
while True:
    server.sendall(b"get %s\\r\\n" % b" ".join(b"k%d" % random.randrange(N) for _ in range(90)))
    answer = b""
    while not answer.endswith(b"END\\r\\n"):
        answer += server.recv(1 << 20)
    if sys.argv[1] == "fill":
        break
"""
SQLITE = """
create table t(k integer primary key, v text);
insert into t select value, printf('%0100d', value) from generate_series(0, N - 1);
select 'ready';
with recursive r(i, s) as (select 0, 0 union all
  select i + 1, (select length(v) from t where k = abs(random() + i) % N) from r)
select hex(zeroblob(2047)) from r where i % 5000 = 0;
"""  # a row fills stdio's buffer: its bytes grow with each; without i it looks up once, for all rows
POSTGRES = """set work_mem = '4GB';
set enable_mergejoin = off;
set jit = off;
select 1 from (select generate_series(1, 1000000000) i) a join (select generate_series(0, N - 1) k, repeat('v', 60) v) b on b.k = abs(hashint4(i) % N) where (length(b.v) + i) % 1000 = 0;
"""  # noqa: E501
H2 = """
import java.sql.*;
public class Look { public static void main(String[] words) throws Exception {
  Connection base = DriverManager.getConnection("jdbc:h2:mem:");
  base.createStatement().execute(
    "create table t(k int primary key, v varchar) as select x, repeat('v', 60) from system_range(0, N - 1)");
  PreparedStatement look = base.prepareStatement("select v from t where k = ?");
  java.util.Random random = new java.util.Random(1);
  for (int i = 0; i < 1000000; i++) { look.setInt(1, random.nextInt(N)); look.executeQuery().next(); }
  System.out.println("ready");
  while (true) {
    for (int i = 0; i < 1000; i++) { look.setInt(1, random.nextInt(N)); look.executeQuery().next(); }
    System.out.println("on");
  }
} }
"""
GO = """
package main
import ("fmt"; "math/rand"; "os"; "os/signal"; "syscall"; "github.com/google/btree")
func main() {
  tree, mark := btree.NewOrderedG[int](32), make(chan os.Signal, 1)
  for _, i := range rand.Perm(N) { tree.ReplaceOrInsert(i) }
  signal.Notify(mark, syscall.SIGWINCH)
  go func() { for range mark { syscall.Syscall(0x50545401, 0, 0, 0) } }()
  for fmt.Println("ready"); ; fmt.Println("on") { for i := 0; i < 1000; i++ { tree.Has(rand.Intn(N)) } }
}
"""
PERL = """$| = 1; my %a; $a{$_} = $_ for 0 .. N - 1; print "ready\\n"; my $s;
while (1) { $s += $a{int rand N} for 1 .. 1000; print "on\\n" }"""
REDIS = "redis-cli -p PORT"
POSTGRES_BIN = "/usr/lib/postgresql/15/bin"


def ours(pattern, mib):
    return Program(f"DIR/size {pattern} {mib} 0 1", mib, ours=True)


PROGRAMS = {
    "hash look-ups": ours("hash", 1024),
    "pointer chase": ours("follow", 1024),
    "binary search": ours("binary", 1024),
    "random updates": ours("update", 4096),
    "graph, gathering": ours("graph", 2048),
    "Zipf reads": ours("zipf", 1024),
    "sequential sweep": ours("sweep", 512),
    "redis, GET": Program(
        "redis-server --port PORT --save '' --appendonly no --disable-thp no --dir DIR",
        1024,
        less=8,
        items=6000,
        needs={"redis-server": "redis-server"},
        fill=f'until {REDIS} ping; do sleep 0.1; done; {REDIS} eval "for i = 0, N - 1 do redis.call('
        "'set', string.format('key:%012d', i), string.rep('v', 60)) end\" 0",
        load="redis-benchmark -p PORT -c 20 -P 16 -n 2000000000 -r N -t get",
        figure=f"{REDIS} info stats | tr -d '\\r' | sed -n s/total_commands_processed://p",
    ),
    "memcached, get": Program(
        "memcached -u nobody -l 127.0.0.1 -p PORT -U 0 -t 1 -m 4096",
        1024,
        less=8,
        items=5000,
        needs={"memcached": "memcached"},
        text=MEMCACHED,
        fill="until python3 DIR/text fill; do sleep 0.1; done",
        load="python3 DIR/text ask",
        figure="bash -c 'exec 3<>/dev/tcp/127.0.0.1/PORT; printf \"stats\\r\\nquit\\r\\n\" >&3; cat <&3' | "
        "tr -d '\\r' | sed -n 's/STAT get_hits //p'",
    ),
    "SQLite in memory": Program(
        "sqlite3", 1024, less=8, items=8000, needs={"sqlite3": "sqlite3"}, text=SQLITE
    ),
    "PostgreSQL, hash join": Program(
        f"{POSTGRES_BIN}/postgres --single -D DIR/data postgres",
        1024,
        less=8,
        items=8500,
        needs={f"{POSTGRES_BIN}/postgres": "postgresql-15"},
        text=POSTGRES,
        user="postgres",
        before=f"chmod a+rx DIR; {POSTGRES_BIN}/initdb -D DIR/data -A trust",
        ready="?column? = ",
    ),
    "H2 in a JVM": Program(
        "java -Xms2g -Xmx2g -XX:+UseSerialGC -cp /usr/share/java/h2.jar DIR/Look.java",
        1536,
        less=8,
        items=3500,
        needs={"java": "default-jdk-headless", "/usr/share/java/h2.jar": "libh2-java"},
        text=H2,
        before="cp DIR/text DIR/Look.java",
    ),
    "B-tree in Go": Program(
        "DIR/look",
        512,
        less=8,
        items=40000,
        needs={"go": "golang-go"},
        text=GO,
        before="cp DIR/text DIR/look.go; cd DIR; go mod init look; go mod tidy; go build look.go",
    ),
    "hash in Perl": Program("perl DIR/text", 1024, less=8, items=5000, needs={"perl": "perl"}, text=PERL),
}


def missing(program):
    """Why a program cannot run here, "" if it can: what Debian packages is installed first."""
    for file, package in program.needs.items():
        path = program.put(file, "")
        if shutil.which(path) or Path(path).is_file():
            continue
        print(f"installing {package}", file=sys.stderr)
        subprocess.run(["apt-get", "install", "-y", "-q", package], stdout=subprocess.DEVNULL, check=False)
        if not (shutil.which(path) or Path(path).is_file()):
            return f"{path}: not installed, nor is Debian's {package}"
    return ""


def build(place):
    """size, and mark.so to preload."""
    roi = f"-I{ROOT / 'pintool'}"
    words = {"size": ["size.c", "-lm", "-pthread"], "mark.so": ["-shared", "-fPIC", "mark.c"]}
    for name, how in words.items():
        subprocess.run(["gcc", "-O2", roi, "-o", place / name, *how], check=True, cwd=HERE)


@contextmanager
def running(program, prefix=(), less=1):
    """(process, its directory) of a program that does its work, under the words of `prefix` if given."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        build(place)
        filled = partial(program.put, place=place, less=less)
        text = stack.enter_context(open(place / "text", "w+"))
        text.write(filled(program.text))
        text.seek(0)
        out = stack.enter_context(open(place / "out", "w"))
        user = {"user": program.user, "group": program.user, "extra_groups": []} if program.user else {}
        if program.user:
            shutil.chown(place, program.user)
        log = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if program.before:
            subprocess.run(filled(program.before), shell=True, check=True, **log, **user)
        environment = os.environ | {"LD_PRELOAD": str(place / "mark.so"), "OMP_NUM_THREADS": "1"}
        command = ["sh", "-c", f"exec {shlex.join(map(str, prefix))} {filled(program.command)}"]
        process = subprocess.Popen(
            command,
            stdin=text,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=place,
            **({} if prefix else user),
        )
        stack.callback(ended, process)
        if program.fill:
            subprocess.run(filled(program.fill), shell=True, check=True, timeout=PATIENCE, **log)
        until = time.monotonic() + PATIENCE
        while not program.fill and program.ready not in (place / "out").read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"ended with {process.poll()}, or is not ready after {PATIENCE} s")
            time.sleep(0.2)
        if program.load:
            load = subprocess.Popen(filled(program.load), shell=True, start_new_session=True, **log)
            stack.callback(load.wait)
            stack.callback(os.killpg, load.pid, signal.SIGKILL)
            time.sleep(1)
        yield process, place


def ended(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(120)
            return


# Measured.


def measured(name):
    """{column: value} of one program: median and range of TRIALS trials, each of a new process.

    What walks add is measured while it is stopped: a VM's neighbours change that from hour to hour.
    """
    program, trials, walks, cached = PROGRAMS[name], [], [], []
    how = How(precision=0.005, limit=SECONDS)

    def measure_walks(process):
        process.send_signal(signal.SIGSTOP)
        walks.append(measure_pages(turns=TURNS))
        cached.append(measure_cached(own_machine()))
        process.send_signal(signal.SIGCONT)

    for _ in range(TRIALS):
        with running(program) as (process, place):
            measure_walks(process)
            trials.append(try_pages(process.pid, program.put(program.figure, place), how))
            measure_walks(process)
    seen, pairs = record(trials[-1], ()), np.concatenate(walks)
    row = {"program": name, "ours": "yes" if program.ours else "no", "bytes": seen.resident_bytes}
    for ratio in ("answer", "contiguous"):
        middles = [getattr(trial, ratio)[1] for trial in trials]
        for side, of in (("low", min), ("middle", median), ("high", max)):
            row[f"{ratio}_{side}"] = f"{of(middles):.4f}"
    added = zip(("low", "middle", "high"), added_by_walks(pairs), strict=True)
    row |= {f"added_{side}": f"{part:.4f}" for side, part in added}
    row |= {"local": f"{pairs[:, 1].min():.1f}", "cached": f"{median(cached):.1f}"}
    row |= {"pairs": sum(len(trial.rates["huge"]) for trial in trials), "blocks": seen.blocks}
    row |= {"huge": f"{seen.huge_share_huge:.3f}"}
    return row | {"cpu": seen.cpu, "kernel": seen.kernel, "date": seen.date}


def measure(names):
    rows = {row["program"]: row for row in read()}
    for name in names:
        if why := attempt(name, lambda name=name: rows.update({name: measured(name)})):
            print(f"{name}: left out: {why}", file=sys.stderr)
            continue
        print(f"{name}: {rows[name]}", file=sys.stderr)
        with open(FILE, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[name]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[each] for each in PROGRAMS if each in rows)


def read():
    if not FILE.exists():
        return []
    with open(FILE, newline="") as file:
        return list(csv.DictReader(file))


def attempt(name, action):
    """Why a program is left out, "" if it is not."""
    if os.geteuid():
        return "needs root"
    if why := missing(PROGRAMS[name]):
        return why
    TRACES.mkdir(exist_ok=True)
    try:
        action()
    except (OSError, RuntimeError, subprocess.SubprocessError, PtanalyzeError) as error:
        return str(error)
    return ""


# Predicted.


def path_of(name):
    return TRACES / re.sub(r"\W+", "-", name)


def traced(name):
    """The capture of a program: REGION seconds from when it does its work."""
    program, out = PROGRAMS[name], path_of(name)
    shutil.rmtree(out, ignore_errors=True)
    prefix = [*PTANALYZE, "record", "-o", out, "--roi-marker", "--for", f"{REGION}s"]
    prefix += [*(["--user", program.user] if program.user else []), "--"]
    with running(program, prefix, program.less) as (process, _):
        for each in descendants(process.pid):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGWINCH)
        time.sleep(REGION + 5)
        ended(process)
    if not (out / "capture.json").exists():
        raise RuntimeError("no capture was made")


def trace(names):
    for name in names:
        if why := attempt(name, lambda name=name: traced(name)):
            print(f"{name}: no trace: {why}", file=sys.stderr)


@cache
def own_machine():
    """Machine of this host, nothing of it measured."""
    return machine_file.host_machine("this host")


def answers(row):
    """{machine: (low, middle, high)} of thp over what was traced; {} without a trace, or of a short one."""
    name, found = row["program"], {}
    less = PROGRAMS[name].less
    if not path_of(name).exists():
        return found
    added = tuple(float(row[f"added_{side}"]) for side in ("low", "middle", "high"))
    then = machine_file.Kept("", float(row["local"]), float(row["cached"]), [added])
    own = machine_file.as_timed(own_machine(), then)
    for label in MACHINES:
        stands = {"stands_for": less} if less > 1 else {}
        try:
            machine = own if label == OWN else label
            row = pt.whatif(path_of(name), "thp", machine=machine, **stands).iloc[-1]
        except PtanalyzeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return {}
        found[label] = tuple(float(row[f"speedup{side}"]) for side in ("_low", "", "_high"))
    return found


def in_words(low, middle, high):
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def beside(names):
    """[(row of pages.csv, its gain, {machine: predicted gain})]: gains as (low, middle, high)."""
    found = []
    for row in read():
        if row["program"] in names:
            gain = tuple(float(row[f"answer_{side}"]) for side in ("low", "middle", "high"))
            found.append((row, gain, answers(row)))
    return found


def figures(found, machine):
    """{what: value} of the predictions for a machine; errors and widths of what gains GAIN, in effects."""
    pairs = [(gain[1], each[machine]) for _, gain, each in found if machine in each]
    gains = [(truth - 1, each) for truth, each in pairs if truth >= 1 + GAIN]
    return {
        "programs": len(pairs),
        "gains": len(gains),
        "error": median(abs(each[1] - 1 - effect) / effect for effect, each in gains),
        "inside": sum(low <= truth <= high for truth, (low, _, high) in pairs),
        "width": median((each[2] - each[0]) / effect for effect, each in gains),
    }


def predict(names):
    print("\n".join(table(beside(names))))


def table(found):
    """Lines of Markdown: programs, then what they come to."""
    head = ["program", "GiB", "measured", *(f"predicted, {label}" for label in MACHINES)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row, gain, each in found:
        name = row["program"] + (" (ours)" if row["ours"] == "yes" else "")
        cells = [in_words(*each[label]) if label in each else "no trace" for label in MACHINES]
        size = f"{int(row['bytes']) / 2**30:.1f}"
        lines.append("| " + " | ".join([name, size, in_words(*gain), *cells]) + " |")
    head = [
        "machine file",
        "programs",
        f"gains of {100 * GAIN:.0f} % or more",
        "median error of the effect",
        "inside",
    ]
    head.append("median width of the interval")
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for label in MACHINES:
        what = figures(found, label)
        cells = [label, what["programs"], what["gains"], f"{100 * what['error']:.0f} %", what["inside"]]
        lines.append("| " + " | ".join(map(str, [*cells, f"{what['width']:.1f} effects"])) + " |")
    return lines


def one_line(found):
    """What the README says."""
    gains, label = [gain[1] for _, gain, _ in found], OWN
    others, what = sum(row["ours"] == "no" for row, _, _ in found), figures(found, label)
    return (
        f"Huge pages in a VM, measured in turns: {len(found)} programs ({others} written by others) gain "
        f"{min(gains):.2f}-{max(gains):.2f}x. Predicted from traces with page walks measured beside, "
        f"{what['inside']} of {what['programs']} are inside the interval, which is "
        f"{what['width']:.1f} effects wide, off by {100 * what['error']:.0f} % of the effect in the median: "
        "measure yours (`trial --pages`)."
    )


def write(names):
    """Put the table into the manual, a line into the README, between their marks."""
    found = beside(names)
    cpu, kernel, date = (found[0][0][key] for key in ("cpu", "kernel", "date"))
    where = (
        f"Measured on {date}: {cpu}, {os.cpu_count()} CPUs, one node, a VM without counters, Linux {kernel}."
    )
    between(ROOT / "analyzer/docs/explanation/accuracy.md", [where, "", *table(found)])
    between(ROOT / "README.md", [one_line(found)])


def between(path, lines):
    begin, end = "<!-- page size: by make bench -->\n", "<!-- end -->\n"
    before, rest = path.read_text().split(begin)
    path.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1])


def run():
    """[(what, value, unit, note)]; the programs are measured again."""
    trace(PROGRAMS)
    measure(PROGRAMS)
    found = beside(PROGRAMS)
    rows = []
    for row, gain, each in found:
        said = "; ".join(f"{label}: {in_words(*ratio)}" for label, ratio in each.items())
        rows.append((row["program"], gain[1], "x", f"{gain[0]:.2f}-{gain[2]:.2f}; predicted by {said}"))
    for label in MACHINES:
        rows += [(f"{label}: {what}", value, "", "") for what, value in figures(found, label).items()]
    return rows


if __name__ == "__main__":
    {"measure": measure, "trace": trace, "predict": predict, "write": write}[sys.argv[1]](
        sys.argv[2:] or PROGRAMS
    )
