"""Each command on the bundled captures, as a new user would call it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ptanalyze
from captures import make_family, one_node_capture
from command_line import is_one_line
from needs import needs_root
from ptanalyze.capture.check import Check
from ptanalyze.capture.live import locate
from ptanalyze.core.errors import CHECKOUT, UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.atomic import must_be_writable
from ptanalyze.formats.record import must_be_new, seal
from ptanalyze_host import doctor_command
from ptanalyze_host.doctor_command import NEEDS, Capability, examine
from ptanalyze_synth.capture import must_fit
from ptanalyze_synth.parameters import Parameters, whole_pages
from ptanalyze_synth.plan import plan
from report_page import ReportPage


def test_the_bundled_capture_passes_every_check(pt, sample, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = pt("check", sample)
    checks, conclusion, following = ran.out.split("\n\n")
    every = json.loads(pt("check", sample, "--json").out)["result"]
    assert ran.code == 0 and {one["verdict"] for one in every} == {"ok"}
    assert conclusion == f"usable: {len(every)} checks passed"
    assert all(one["name"].partition(": ")[2] in " ".join(checks.split()) for one in every)
    assert checks.count("  ok ") < len(every) / 2, "those of one subject stand together"
    assert " ".join(following.split()) == f"Next what would be faster ptanalyze advise {sample}"


def test_walk_explains_a_mapped_and_an_unmapped_address(pt, sample):
    mapped = pt("walk", sample, "0x4000000000")
    assert mapped.code == 0
    assert "4 reads" in mapped.out and "PT level 1" in mapped.out and "0: local" in mapped.out
    steps = json.loads(pt("walk", sample, "0x4000000000", "--json").out)["result"]["steps"]
    assert [step["level"] for step in steps] == [4, 3, 2, 1]
    unmapped = pt("walk", sample, "0x1000")
    assert unmapped.code == 1 and "not mapped" in unmapped.out


def test_without_a_capture_only_four_commands_take_the_sample(pt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (["check"], ["info"], ["walk", "1000"], ["timeline"], ["hugepages"]):
        assert is_one_line(pt(*command), 2)
    named = pt("classify")
    assert named.code == 0 and named.out.startswith("SAMPLE embeddings") and not named.err
    read = pt("classify", "--json")
    assert json.loads(read.out)["what"] == "classify" and read.err.startswith("SAMPLE embeddings")


def test_without_a_capture_this_directory_comes_first(pt, sample, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(sample.parent)
    newest = json.loads(pt("info", "--json").out)["result"]["capture"]
    monkeypatch.chdir(sample)
    assert json.loads(pt("info", "--json").out)["result"]["capture"] == {**newest, "directory": "."}
    assert pt("check", "--quick").code == 0 and "SAMPLE" not in pt("classify").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["whatif", "-p", "wonder"], "policy wonder: no such policy; there are: linux, first-touch"),
        (["whatif", "-p", "hydra", "--set", "depth=3"], "depth=3: no policy asked for has this parameter"),
        (["whatif", "-p", "hydra", "--set", "prefetch=12"], "prefetch = 12"),
        (["whatif", "-p", "hydra", "--set", "prefetch"], "write KEY=VALUE"),
        (["whatif", "-p", "hydra", "-m", "abacus"], "machine abacus: unknown; there are: "),
        (["whatif", "-p", "hydra", "-o", "x.tsv"], "name it FILE.json or FILE.csv"),
        (["whatif", "-p", "hydra", "--threads-to-nodes", "0,9"], "9"),
        (["classify", "--by", "thread", "--weight", "leaf"], "by = thread: with weight = leaf"),
        (["walk", "0x1ffffffffffffff"], "outside what 4 levels map"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(pt, sample, arguments, message):
    command, *rest = arguments
    ran = pt(command, sample, *rest)
    assert is_one_line(ran, 2) and message in ran.err


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("whatf", "did you mean whatif?"),
        ("whatif lookup hydra", "-p hydra"),
        ("whatif -p mitosis hydra", "-p hydra"),
        ("advise mitosis+hydra", "-p mitosis+hydra"),
        ("timeline lookup mitosis:nodes=0,1", "-p mitosis:nodes=0,1"),
        ("dump 1", "dump process 1"),
        ("dump redis-server -o x", "dump process redis-server"),
        ("whatif lookup -m hots.toml", "host.toml"),
        ("whatif lookup -m nosuch/saphire-rapids.toml", "sapphire-rapids"),
        ("whatif lookup --calibration hots.toml", "host.toml"),
        ("whatif lookup --calibration README.md", "calibrate"),
        ("whatif lookup --calibration true", "calibrate"),
        ("whatif lookup -m true", "machines"),
        ("calibrate --local -", "/dev/stdin"),
        ("calibrate --local hots.toml", "host.toml"),
        ("calibrate hots.toml", "host.toml"),
        ("record -p 1 --strip off", "leave it out"),
    ],
)
def test_a_word_in_the_wrong_place_comes_with_what_to_type(pt, tmp_path, monkeypatch, typed, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host.toml").touch()
    (tmp_path / "README.md").write_text("# A title\n\nIs your program slow?\n")
    shutil.copy("/bin/true", tmp_path / "true.toml")
    ran = pt(*typed.replace(" true", " true.toml").split())
    said = ran.err.strip().splitlines()[-1]
    assert ran.code == 2 and named in said and "\\x" not in said and "b'" not in said


def test_lines_that_record_a_program_of_this_directory_make_no_capture_of_its_name(pt, tmp_path, monkeypatch):
    def record(command, output, **options):
        raise UsageError(f"{output} of {command[0]}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ptanalyze.capture.live.record.record", record)
    shutil.copy("/bin/true", "app")
    files = [path for end in ("md", "py", "toml") for path in (CHECKOUT / "analyzer").rglob(f"*.{end}")]
    texts = [path.read_text("utf-8") for path in (CHECKOUT / "README.md", CHECKOUT / "Makefile", *files)]
    lines = [line for text in texts for line in re.findall(r"record [^\n`]*-- \./app\b", text)]
    shown = re.findall(r"ptanalyze (record .*)", pt("whatif").out + pt("whatif", "app").err)
    assert len(shown) == 2 and not [line for line in lines if "-o app " in line]
    assert all("app.capture of ./app" in pt(*shlex.split(line)).err for line in shown)


def test_a_trace_without_page_tables_is_replayed_over_inferred_ones(pt, tmp_path):
    lines = "".join(f"I  04001000,3\n L {0x10000000 + k * 4096:08x},8\n" for k in range(5000))
    (tmp_path / "lackey.txt").write_text(lines)
    assert pt("import", "lackey", tmp_path / "lackey.txt", "-o", tmp_path / "bare").code == 0
    ran = pt("whatif", tmp_path / "bare", "-p", "mitosis", "--cold", "--json")
    assert ran.code == 0
    assert "no page tables were captured" in ran.err
    first_touch, mitosis = json.loads(ran.out)["result"]
    assert first_touch["faults"] == 5000
    assert first_touch["pt_bytes"] == 4096 * (3 + 10), "5,000 pages from a 2 MiB boundary on: ten leaf tables"
    assert mitosis["pt_bytes"] == 4 * first_touch["pt_bytes"]


INTERRUPTED = """
import sys
from importlib.abc import MetaPathFinder

seen = []

class CtrlC(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        seen.append(name)
        if name == {at!r}:
            raise KeyboardInterrupt

for name in ("typing", "importlib", "signal", "types", "__future__"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, CtrlC())
sys.argv = ["ptanalyze", "--version"]
from ptanalyze.__main__ import main
before = len(seen)
try:
    main()
finally:
    print(*seen[:before])
"""


@pytest.mark.parametrize("at", ["signal", "typing", "importlib", "ptanalyze.cli", "click"])
def test_ctrl_c_while_the_command_line_is_imported_is_one_line(at):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED.format(at=at)], capture_output=True, text=True)
    assert done.stderr == "ptanalyze: interrupted\n" and done.returncode == 130
    early = done.stdout.split()
    assert early and all(name.startswith("ptanalyze") for name in early), "heeded only by Python itself"


# Captures of several processes on the command line.


def test_info_has_a_row_for_each_process(pt, tmp_path):
    family = make_family(tmp_path / "c")
    shown = pt("info", family)
    assert shown.code == 0 and "processes" in shown.out
    facts = json.loads(pt("info", family, "--json").out)["result"]
    assert facts["process_7"] == {"name": "p7", "table_pages": 5, "leaf_tables": 2}
    names = {name for rows in facts.values() for name in rows} | {*facts}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names), "jq needs no quotes"


def test_answers_say_first_of_which_processes_they_are(pt, tmp_path):
    family = make_family(tmp_path / "c")
    for command in ("whatif", "advise"):
        assert "3 processes together" in pt(command, family).out
        assert "processes together" not in pt(command, family / "pid-8").out
    assert "3 processes together" in pt("classify", family).out
    assert "PID 7 alone" in pt("classify", family, "--by", "vma").out


# `info` about a capture with samples: nothing twice, what else cleared the bits, lengths as one reads.


def test_what_else_cleared_accessed_bits_is_said(pt, tmp_path):
    capture = one_node_capture(tmp_path / "app")
    seal(capture.directory, "process", {"also clears accessed bits": "kdamond 0 is running"})
    assert "kdamond 0 is running" in pt("info", capture.directory).out


# `ptanalyze machines NAME`: a machine file told to people, and as JSON to programs.


def test_this_host_has_a_machine_file_too(pt, tmp_path):
    path = tmp_path / "mine.toml"
    ran = pt("machines", "--from-host", path)
    assert ran.code == 0 and ran.out.startswith(f"{path}: ") and len(ran.out.splitlines()) <= 4
    assert load_machine(str(path)).name == "mine"
    again = pt("machines", "--from-host", path)
    assert again.code == 2 and "exists already" in again.err
    alone = pt("machines", "--measure")
    assert alone.code == 2 and "--measure goes with --from-host" in alone.err


# `doctor`: each part of the host, whether it can be used, and how to get what is missing.

IDS = "trace, dump, btf, rights, counters, kvm, nodes, thp, disk"


def test_every_part_is_told_in_lines_that_fit_and_what_is_missing_comes_with_a_way_to_get_it(pt, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = pt("doctor")
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    whole = json.loads(pt("doctor", "--json").out)
    assert (whole["host"], whole["version"]) == (os.uname().nodename, ptanalyze.__version__)
    assert ", ".join(part["id"] for part in whole["result"]) == IDS, "scripts know them"
    assert f"{IDS}." in " ".join(pt("doctor", "--help").out.split())
    for one in (Capability(**part) for part in whole["result"]):
        assert re.search(rf"^  {'ok' if one.there else '--'}  {one.what} ", ran.out, re.MULTILINE), one
        assert not (one.there and one.missing) and one.found and one.gives, one
    gone, said = {part["id"] for part in whole["result"] if not part["there"]}, whole["summary"]
    assert gone - {"nodes"} == {*said["missing"]}, "a host of one node lacks nothing"
    assert [*said["commands"]] == [name for name, needs in NEEDS.items() if not {*needs} & gone]


def test_without_native_tools_it_says_what_to_build_and_required_ones_are_missed(pt, monkeypatch, tmp_path):
    monkeypatch.setattr(locate, "BUILT_IN", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = pt("doctor", "--require", "btf, dump,dump")
    assert "--  dumper" in ran.out and "make native" in ran.out and "You can analyse captures" in ran.out
    assert is_one_line(ran, 1) and "--require dump: missing (ptdump not found); " in ran.err
    wrong = pt("doctor", "--require", "dump,trase")
    assert is_one_line(wrong, 2) and "--require trase: no such part; did you mean trace? " in wrong.err
    assert pt("doctor", "--require", ",".join(one.id for one in examine() if one.there)).code == 0


def test_kvm_without_nested_paging_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_command, "KVM", tmp_path)
    monkeypatch.setattr(doctor_command, "NESTED", [file := tmp_path / "npt", tmp_path / "no module"])
    for said in "N0Y1":
        file.write_text(said)
        assert doctor_command.kvm().there == (said in "Y1")


# `ptanalyze synth` makes captures that every other command takes.

SMALL = ("--size", "16M", "--accesses", "20000", "--munmap-every", "5000", "--mprotect-every", "7000")


@pytest.mark.parametrize("guest", ["native", "visible", "oblivious"])
def test_a_synthetic_capture_goes_through_every_command(pt, tmp_path, guest):
    out = tmp_path / "made"
    move = ("--move", "0.5:0:1", "--move-data", "0.5:50000")
    made = pt("synth", "-o", out, *SMALL, *move, "--guest", guest, "--fragmentation", "0.3")
    assert made.code == 0 and f"{out}: made" in made.out
    assert pt("check", out).code == 0
    info = json.loads(pt("info", out, "--json").out)["result"]
    assert info["how_sure"]["method"] == "synth" and info["trace"]["move_pages_events"] > 0
    classified = json.loads(pt("classify", out, "--json").out)["result"]
    assert [found["weight"] for found in classified] == ["leaf", "walks"]
    assert pt("walk", out, hex(1 << 46)).code == 0
    answer = json.loads(pt("whatif", out, *("-p", "linux", "-p", "hydra", "-p", "mitosis"), "--json").out)
    refused = {"hydra", "mitosis"} if guest == "oblivious" else set()
    assert {result["policy"] for result in answer["result"]} == {"linux", "hydra", "mitosis"} - refused
    assert set(answer.get("refused", {})) == refused


def test_a_machine_without_room_is_refused_with_what_is_enough(pt, tmp_path):
    ran = pt("synth", "-o", tmp_path / "made", "--size", "64M", "--nodes", "2", "--node-memory", "16M")
    assert ran.code == 2 and "the machine is full" in ran.err
    enough = ran.err.rpartition("(")[2].split()[0]
    assert list(tmp_path.iterdir()) == []
    more = pt("synth", "-o", tmp_path / "made", "--size", "64M", "--nodes", "2", "--node-memory", enough)
    assert more.code == 0


def test_a_disk_without_room_is_said_before_anything_is_written():
    with pytest.raises(UsageError, match=r"do not fit, 0 are free"):
        must_fit(plan(Parameters(size=whole_pages("1.5T"), guest="visible")), Path("/proc/self/task"))


# `diff` says that a redacted capture has other frames than the one it was made from.


def test_a_redacted_capture_is_named_and_others_are_not(pt, tmp_path):
    capture = one_node_capture(tmp_path / "app", heat=False)
    assert pt("redact", capture.directory, "-o", tmp_path / "red").code == 0
    said = pt("diff", capture.directory, tmp_path / "red").out
    assert f"{tmp_path / 'red'} is redacted: frames are renumbered there" in said
    assert "ptanalyze classify" not in said + pt("info", capture.directory).out, "on one node all is local"
    assert "is redacted" not in pt("diff", capture.directory, capture.directory).out


# `ptanalyze report`: a page from the command line.


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "small"
    return ptanalyze.synth(place, "16M", accesses=1500, init_trace=False, mprotect_every=500).directory


def repeated(page):
    """The command that makes the page again; other commands are what to do about the program."""
    return next(code.text for code in page.all("code") if code.text.startswith("ptanalyze report"))


def test_the_command_to_repeat_is_what_was_given_and_makes_the_same_page(pt, small, tmp_path):
    given = ("--memory", "1%", "-m", "hydra-haswell", "--contended", "--threads-to-nodes", "block")
    path = tmp_path / "a b.html"
    assert pt("report", small, "-o", path, *given).code == 0
    text = path.read_text("utf-8")
    name, sub, *arguments = shlex.split(repeated(ReportPage(text)))
    assert (name, sub) == ("ptanalyze", "report")
    assert set(arguments) == {str(small), str(path), "-o", *given}
    path.unlink()
    assert pt(sub, *arguments).code == 0 and path.read_text("utf-8") == text


def test_errors_are_one_line_and_come_before_any_work(pt, small, tmp_path):
    for given, why in (
        ((tmp_path / "nothing", "-o", tmp_path / "a.html"), "no such capture"),
        ((small, "-o", tmp_path / "a.pdf"), "FILE.html"),
        ((small, "-o", tmp_path / "no" / "a.html"), "there is no directory"),
        ((small, "-o", tmp_path / "a.html", "--memory", "lots"), "write a size"),
        ((small, "-o", tmp_path / "a.html", "-m", "toaster"), "toaster"),
        ((small, tmp_path, "-o", tmp_path / "a.html"), "capture.json"),
    ):
        ran = pt("report", *given)
        assert is_one_line(ran, 2) and why in ran.err and not ran.out
    assert list(tmp_path.iterdir()) == []


def test_the_exit_code_is_that_of_check(pt, tmp_path, monkeypatch):
    from ptanalyze.capture import check

    whole, gone = check.check_capture, Check("dump: complete", 5, 1, "partial", "one page was gone")
    monkeypatch.setattr(check, "check_capture", lambda one: [*whole(one), gone])
    path = tmp_path / "page.html"
    untraced = ptanalyze.synth(tmp_path / "untraced", "16M", trace=False).directory
    first, again = (pt("report", untraced, "-o", path) for _ in range(2))
    assert first.code == again.code == 3 and "wrote" in first.err and "replaced" in again.err
    assert "1 check of the capture found data missing" in ReportPage(path.read_text("utf-8")).text()


@pytest.mark.parametrize("step", ["chapter", "environment"])
def test_ctrl_c_leaves_what_was_there(pt, small, tmp_path, monkeypatch, step):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr(f"ptanalyze_report.page.{step}", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    ran = pt("report", small, "-o", path)
    assert ran.code == 130 and ran.err.splitlines()[-1] == "ptanalyze: interrupted"
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_ctrl_c_that_code_in_c_turned_into_another_error_is_still_ctrl_c(pt, monkeypatch):
    """Matplotlib's does: "Invalid affine transformation matrix"."""
    from ptanalyze.capture import check

    def drawn(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("Invalid affine transformation matrix") from None

    monkeypatch.setattr(check, "check_capture", drawn)
    ran = pt("check", "lookup")
    assert ran.code == 130 and ran.err.splitlines()[-1] == "ptanalyze: interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# What is named in place of a capture or a measured file, and what answers keep on disk.


@needs_root
def test_a_directory_without_the_right_to_write_is_named_and_no_temporary_file(tmp_path):
    """Asked by a user who is not root, whose rights the kernel checks; root has every right in /proc."""
    code = (
        "import os, sys\nos.setuid(65534)\n"
        "from ptanalyze.core.errors import UsageError\n"
        "from ptanalyze.formats.atomic import must_be_writable\n"
        "from ptanalyze.formats.record import must_be_new\n"
        "for ask in (must_be_new, must_be_writable):\n"
        "    try: ask('/usr/page')\n"
        "    except UsageError as error: print(error)\n"
    )
    kernels = "import ptanalyze.formats.record, ptanalyze.formats.atomic\n"
    ran = subprocess.run([sys.executable, "-c", kernels + code], capture_output=True, text=True, check=True)
    assert [line.split(": ")[0] for line in ran.stdout.splitlines()] == ["/usr/page"] * 2
    for refuse in (must_be_new, must_be_writable):
        with pytest.raises(UsageError, match=r"^/proc/page: "):
            refuse("/proc/page")


@needs_root
def test_root_leaves_no_byte_code_in_the_package_of_a_user(tmp_path):
    """A copy that belongs to another user is run by root as sudo does."""
    package = tmp_path / "ptanalyze"
    caches = shutil.ignore_patterns("__pycache__", ".cache")
    shutil.copytree(Path(ptanalyze.__file__).parent, package, ignore=caches)
    for path in (package, *package.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    asked = {**os.environ, "PYTHONPATH": str(tmp_path), "SUDO_UID": "65534", "SUDO_GID": "65534"}
    asked.pop("PYTHONDONTWRITEBYTECODE", None)
    code = "import sys; sys.argv[1:] = ['policies']\nfrom ptanalyze.__main__ import main\nmain()"
    subprocess.run([sys.executable, "-c", code], env=asked, check=True, capture_output=True, cwd=tmp_path)
    assert not [path for path in package.rglob("*") if path.stat().st_uid != 65534]
