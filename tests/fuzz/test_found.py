"""What was once found by fuzzing, each as small as it gets: now one line and a documented exit code."""

import json
import shutil
from struct import pack_into
from zlib import crc32

import pytest

from captures import HARM
from ptanalyze.cli import run
from ptanalyze.core.errors import bundled

from .attempt import attempt, function
from .bases import contents, process, vm
from .changes import EVENT_FRAME, FRAME, HEADER, frames_of, reseal
from .changes import put as put_number
from .inputs import TAKEN

CASCADE_LAKE = "vmitosis-cascade-lake.toml"


def ended(capfd, *arguments):
    """Exit code, after looking at what was said."""
    capfd.readouterr()
    code = run([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    assert code in (0, 1, 2, 3) and not HARM & set(out + err), err
    assert not code or arguments[0] == "check" or err.count("\n") == 1, err
    return code


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    place = tmp_path_factory.mktemp("bases")
    process(place / "four")
    vm(place / "vm")
    return place


@pytest.fixture
def sealed(bases, tmp_path):
    """sealed(name, change): a capture in which change(files) was done, sealed by whoever did it."""

    def made(name, change):
        files = contents(bases / name)
        change(files)
        reseal(files)
        target = tmp_path / "c"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for file, content in files.items():
            (target / file).write_bytes(content)
        return target

    return made


def with_facts(change):
    def changed(files):
        snapshot = json.loads(files["snapshot.json"])
        change(snapshot["facts"])
        files["snapshot.json"] = json.dumps(snapshot).encode()

    return changed


def in_facts(text):
    def changed(files):
        facts = b'"facts": {"x": ' + text + b", "
        files["snapshot.json"] = files["snapshot.json"].replace(b'"facts": {', facts, 1)

    return changed


def in_header(offset, value):
    def changed(files):
        head = bytearray(files["trace.ptt"])
        put_number(head, offset, 8, value)
        put_number(head, 20, 4, 0)
        put_number(head, 20, 4, crc32(head[:HEADER]))
        files["trace.ptt"] = bytes(head)

    return changed


def in_event(kind, offset, form, value):
    def changed(files):
        trace = files["trace.ptt"]
        frames, rest = frames_of(trace)
        for frame in frames:
            if frame[16] == EVENT_FRAME and frame[FRAME] == kind:
                pack_into(form, frame, FRAME + offset, value)
                put_number(frame, 4, 4, 0)
                put_number(frame, 4, 4, crc32(frame))
        files["trace.ptt"] = trace[:HEADER] + b"".join(map(bytes, frames)) + rest

    return changed


CAPTURES = {
    "a fact that is no UTF-8": in_facts(b'"\xff"'),
    "nested facts": in_facts(b"[" * 60_000 + b"]" * 60_000),
    "a guest base of 2^63": in_header(88, 1 << 63),
    "a trace that began in the year 19391": in_header(40, 1 << 39),
    "brk with a negative result": in_event(8, 40, "<q", -4096),
    "mremap of 2^64 - 1 bytes": in_event(6, 24, "<Q", (1 << 64) - 1),
    "a manifest of brackets": lambda files: files.update({"capture.json": b"[" * 100_000}),
    "no time": with_facts(lambda facts: facts.update(time=None)),
    **{f"facts of a VM: {value!r}": with_facts(lambda facts, value=value: facts.update(vm=value)) for value in
       (5, None, [], {"fit": 5}, {"fit": {"tables": 3}}, {"guest_nodes": 3}, {"numa_oblivious": False})},
}  # fmt: skip


@pytest.mark.parametrize("what", CAPTURES)
@pytest.mark.parametrize("command", [("check",), ("info",), ("whatif", "-p", "linux"), ("redact", "-o", "r")])
def test_a_capture_that_says_what_cannot_be(capfd, sealed, tmp_path, monkeypatch, what, command):
    monkeypatch.chdir(tmp_path)
    ended(capfd, command[0], sealed("vm" if "VM" in what else "four", CAPTURES[what]), *command[1:])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("entries = 1536", "entries = 12884901888"),
        ("nodes = 4", "nodes = 4000000000"),
        ("ghz = ", "ghz = 1e308 #"),
        ("cpus_per_node = ", "cpus_per_node = 9999999 #"),
    ],
)
def test_a_machine_that_nobody_could_build(capfd, tmp_path, old, new):
    text = (bundled("models") / "machines" / CASCADE_LAKE).read_text()
    assert old in text
    (tmp_path / "m.toml").write_text(text.replace(old, new, 1))
    assert ended(capfd, "machines", tmp_path / "m.toml") == 2


SAMPLES = {
    "CPU 40000": " prog 1 [40000] 1.5: mem-loads: 7f0000000000\n",
    "65,537 threads": "".join(f" p {i + 1} [000] 1.{i:06d}: x: 7f0000000000\n" for i in range(65537)),
    "a time beyond 2^63 ns": " p 1 [0] 18446744075.5: x: 7f0000001000\n",
}


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_samples_that_a_trace_has_no_room_for(capfd, tmp_path, text):
    (tmp_path / "p.txt").write_text(text)
    assert ended(capfd, "import", "perf-script", tmp_path / "p.txt", "-o", tmp_path / "o") == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(("name", "text"), [("size", "9" * 400 + "T"), ("setting", "layers=\udcff")])
def test_words_that_are_no_value(name, text):
    ended = attempt(function(name, TAKEN[name], text))
    assert (ended.code, ended.wrong) == (2, "")


def test_a_name_that_is_no_utf8_can_be_written(capfd, bases, tmp_path):
    assert ended(capfd, "redact", bases / "four", "-o", tmp_path / "r\udcff") == 0


def test_a_host_without_a_process_has_none_to_classify_by(capfd, bases):
    assert ended(capfd, "classify", bases / "vm-host", "--by", "process") == 2


DIGITS = "9" * 5000
ASKED = {
    "a PID": ("dump", "process", DIGITS),
    "a PID to sample": ("record", "-p", DIGITS),
    "a time to sample": ("record", "-p", "1", "--for", DIGITS),
    "a VM": ("survey", "--guest", DIGITS),
    "a user": ("record", "--user", DIGITS, "--", "/bin/true"),
    "a process to compare with": ("check", "lookup", "--live", DIGITS),
    "nodes of threads": ("whatif", "lookup", "-p", "hydra", "--threads-to-nodes", DIGITS),
    "nodes of a policy": ("whatif", "lookup", "-p", "mitosis", "--set", f"nodes={DIGITS}"),
    "nodes of moves": ("whatif", "lookup", "-p", "hydra", "--move-threads", f"0:{DIGITS}@30%"),
    "values of a sweep": ("sweep", "lookup", "-p", "hydra", "--set", f"prefetch=0:{DIGITS}"),
    "a node of synthetic tables": ("synth", "--size", "64M", "--placement", f"bind:{DIGITS}", "-o", "o"),
    "nodes of synthetic threads": ("synth", "--size", "64M", "--threads-to-nodes", DIGITS, "-o", "o"),
}


@pytest.mark.parametrize("what", ASKED)
def test_thousands_of_digits_and_no_numbers_are_refused(capfd, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    code = run(list(ASKED[what]))
    out, err = capfd.readouterr()
    assert code == 2 and "Traceback" not in err and not out and not list(tmp_path.iterdir())
