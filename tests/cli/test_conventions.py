"""What people expect of any command line: help, completion, defaults, near misses, names and numbers."""

import json
import os
import re
import subprocess
import sys
import tomllib
from inspect import cleandoc

import click
import msgspec
import pytest

import ptanalyze as ptanalyze_package
from command_line import EVERY, LEAVES, is_one_line
from house import PACKAGE
from ptanalyze import load, synth, whatif
from ptanalyze.analysis.setup import Setup
from ptanalyze.cli import COMMANDS, OF_OUTPUT, entries, run
from ptanalyze.cli import ptanalyze as program
from ptanalyze.core import errors
from ptanalyze.core.errors import CHECKOUT, DEFAULT_MACHINE, EXTRAS, UsageError, bundled, this_program
from ptanalyze.core.machine import load_machine
from ptanalyze.core.options import OPTIONS as OF_REPLAYS
from ptanalyze.core.options import Keywords, Options
from ptanalyze.formats.measured import write_machine
from ptanalyze.policies import names
from ptanalyze.show import terminal


def policies_in(ran):
    return [row["policy"] for row in json.loads(ran.out)["result"]]


def test_policies_are_named_one_by_one_with_commas_all_at_once_or_as_the_api_does_by_default(pt, tmp_path):
    sample = synth(tmp_path / "small", "16M", accesses=1500, init_trace=False).directory

    def asked(*words):
        return policies_in(pt("whatif", sample, *words, "--json"))

    assert asked("-p", "mitosis,hydra") == asked("-p", "mitosis", "-p", "hydra") == asked()
    assert asked("-p", "bind:node=1,mitosis")[1:] == ["bind", "mitosis"]
    everything = pt("whatif", sample, "-p", "all", "--json")
    assert {*policies_in(everything), *json.loads(everything.out)["refused"]} == set(names())


def test_help_and_version_are_found_where_other_programs_have_them(pt):
    assert pt("help").out == pt("--help").out and pt("help", "walk").out == pt("walk", "--help").out
    assert pt("-V").out == pt("version").out == pt("--version").out != ""
    for group in ((), ("dump",)):  # an error of click since 8.2, which is no line
        assert (bare := pt(*group)).out + bare.err == pt(*group, "--help").out


def test_an_address_is_hexadecimal_with_and_without_its_mark_and_the_capture_may_be_left_out(pt, monkeypatch):
    monkeypatch.chdir(bundled("samples") / "lookup")
    marked, bare = pt("walk", ".", "0x4000000000"), pt("walk", ".", "4000000000")
    assert marked.code == 0 and marked.out == bare.out == pt("walk", "4000000000").out
    for words in ((), ("a", "b", "c"), (".", "zz")):
        assert pt("walk", *words).code == 2


def test_a_size_limit_that_no_trace_fits_in_is_refused_before_the_program_runs(pt, tmp_path):
    made = tmp_path / "made"
    ran = pt("record", "-o", tmp_path / "c", "--no-dump", "--max-bytes", "10", "--", "touch", str(made))
    assert ran.code == 2 and "max-bytes = 10: " in ran.err and "64K" in ran.err and not made.exists()


def test_a_log_with_forced_colour_holds_no_progress_bars(sample):
    command = [sys.executable, "-m", "ptanalyze", "whatif", str(sample), "-p", "linux"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"FORCE_COLOR": "1"})
    assert done.returncode == 0 and "\x1b" not in done.stderr and "\r" not in done.stderr


def test_a_value_that_only_one_of_the_policies_takes_says_how_to_give_it_to_that_one(pt, vm_sample):
    ran = pt("whatif", vm_sample, "-p", "mitosis,vmitosis-replicate,vmitosis-migrate", "--set", "mode=no-f")
    assert is_one_line(ran, 2) and ran.err.endswith(" vmitosis-replicate.mode=no-f\n") and not ran.out


def test_what_makes_a_capture_names_it_when_nobody_does(pt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lackey.txt").write_text("I  04001000,3\n L 10000000,8\n")
    made = [
        (("synth", "--size", "16M", "--no-trace"), "synth"),
        (("import", "lackey", "lackey.txt"), "lackey.txt"),
        (("redact", "synth.capture"), "synth.redacted"),
        (("synth", "--size", "16M", "--no-trace"), "synth.2"),
    ]
    for words, name in made:
        assert pt(*words).code == 0
        assert (tmp_path / f"{name}.capture/capture.json").is_file(), words


# The help: four groups that fit a terminal and import no command; every option says what it is.

LONGEST = 45  # characters of a summary: fits 80 columns behind the longest name
SAYS_ITS_DEFAULT = re.compile(r"\bDefault: .+\.$")
OPTIONS = {
    (name, one.opts[0]): one
    for name, command in {"": program, **EVERY}.items()
    for one in command.params
    if isinstance(one, click.Option)
}


def test_the_help_imports_no_command_and_nothing_slow():
    code = (
        "import sys; from ptanalyze.cli import run; run(['--help']); "
        "print([m for m in sys.modules if m.startswith('ptanalyze.cli.')"
        " or m in ('numpy', 'numba', 'pandas', 'rich')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("line", "imported"),
    [
        ("info sysbench-memory", []),
        ("walk sysbench-memory 0x7f0000000000", []),
        ("machines vmitosis-cascade-lake", []),
        ("policies hydra", ["numba"]),  # its hooks
        ("check sysbench-memory", ["numba"]),  # decodes the trace
        ("whatif sysbench-memory -p hydra", ["numba"]),
    ],
)
def test_a_command_imports_only_the_libraries_that_it_uses(line, imported):
    assert len(load("sysbench-memory").trace.chunks)  # its index is known from here on
    code = (
        f"import sys; from ptanalyze.__main__ import main; sys.argv[1:] = {line.split()!r}\ntry: main()\n"
        "except SystemExit: libraries = 'numba pandas pyarrow matplotlib seaborn jinja2 itables'.split(); "
        "print([n for n in libraries if n in sys.modules], *open('/proc/self/oom_score_adj'), end='')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{imported} 1000", "and is the first that the kernel kills"


@pytest.mark.parametrize(
    ("line", "library", "extra"),
    [
        ("report sysbench-memory -o r.html", "jinja2", "report"),
        ("whatif sysbench-memory -p hydra --plot p.png", "seaborn", "plots"),
    ],
)
def test_an_extra_is_asked_for_before_anything_is_computed(pt, tmp_path, monkeypatch, line, library, extra):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "ptanalyze_report.page", raising=False)
    ran = pt(*line.split())
    assert ran.code == 2 and ran.out == "" and not [*tmp_path.iterdir()]
    assert ran.err.count("\n") == 1 and f"-m pip install -e '{CHECKOUT}[{extra}]'" in ran.err
    monkeypatch.chdir(CHECKOUT)
    assert f"-m pip install -e '.[{extra}]'" in pt(*line.split()[:-1], tmp_path / line.split()[-1]).err
    monkeypatch.setattr(errors, "CHECKOUT", tmp_path)  # a wheel
    said = pt(*line.split()[:-1], tmp_path / line.split()[-1]).err.partition("-m pip install ")[2].split()
    assert {library, "matplotlib"} <= {*said} and "ptanalyze" not in " ".join(said)


def test_who_forgot_p_or_dashes_is_not_given_a_second_process(pt):
    for options in ((), ("--pages",), ("--pages", "--figure-of", "date")):
        assert is_one_line(pt("trial", *options, "redis-server"), 2)


def test_the_api_says_which_extra_a_name_of_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "seaborn", None)
    for name in ("plots", "style"):  # imported by a test before, they are also attributes of their package
        monkeypatch.delitem(sys.modules, f"ptanalyze.show.{name}", raising=False)
        monkeypatch.delattr(f"ptanalyze.show.{name}", raising=False)
    with pytest.raises(UsageError, match=r"\[plots\]'"):
        ptanalyze_package.__getattr__("plots")


def test_the_libraries_of_an_extra_are_those_that_pyproject_has_there():
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = {extra: {re.match(r"\w+", text)[0] for text in extras[extra]} for extra in EXTRAS}
    assert listed["plots"] == {*EXTRAS["plots"]}
    assert listed["report"] | {"markupsafe"} == {*EXTRAS["report"], "ptanalyze"}  # jinja2's own


def test_commands_are_listed_in_four_groups_that_fit_80_columns(pt, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = pt("--help").out
    assert max(map(len, out.splitlines())) <= 80
    places = [out.index(f"\n{heading}:\n") for heading in COMMANDS]
    assert list(COMMANDS) == ["Capture", "Inspect", "Ask", "Model"] and places == sorted(places)
    for name, entry in entries().items():
        assert re.search(rf"^  {name} +{re.escape(entry.summary)}$", out, re.MULTILINE), name


@pytest.mark.parametrize("name", EVERY)
def test_a_command_explains_itself_in_sentences_and_wrong_usage_in_a_line(pt, name):
    summary, (first, *_) = EVERY[name].short_help, cleandoc(EVERY[name].help).split("\n\n")
    assert first[0].isupper() and first[-1] in ".:"
    assert summary and summary[0].isupper() and summary.endswith(".") and len(summary) <= LONGEST
    assert is_one_line(pt(*name.split(), "--no-such-option"), 2)


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_an_example_that_names_options_it_has(name):
    example = re.search(r"Examples?(?: \([^)]*\))?: +(.*)", LEAVES[name].help.replace("\n", " "))
    assert example, name
    options = {word for one in LEAVES[name].params for word in (*one.opts, *one.secondary_opts)}
    told = re.findall(rf"ptanalyze {name}((?: [^;&|]*)?)", example[1]) if example else []
    used = {
        word.partition("=")[0] for line in told for word in line.split(" -- ")[0].split() if word[0] == "-"
    }
    assert used <= options, used - options


def test_an_option_says_what_it_is_and_its_default_once():
    for option in OPTIONS.values():
        text = option.help
        assert text and text[0].isupper() | text.startswith("perf stat") and text.endswith("."), text
        assert not (option.show_default and "Default:" in text), text
        if not (option.is_flag or option.required):
            assert option.show_default or SAYS_ITS_DEFAULT.search(text) or "Also " in text, text


def test_the_fields_of_options_are_the_options_and_the_manual():
    asked = [*OF_REPLAYS]
    known = {one.name for one in EVERY["timeline"].params + EVERY["whatif"].params}
    assert {*asked} <= known and all(f"\n{name:<13} " in Setup.__doc__ for name in asked)
    everywhere = [one.name for one in EVERY["hugepages"].params if one.name in asked]
    assert everywhere == asked[: asked.index("baseline")], "in the order of the fields"


@pytest.mark.parametrize("name", EVERY)
def test_the_help_of_a_command_fits_80_columns(pt, monkeypatch, tmp_path, name):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    said = pt(*name.split(), "--help").out
    assert max(map(len, said.splitlines())) <= 80
    assert "sudo ptanalyze" not in said or this_program() == "ptanalyze", "sudo searches no environment"
    options = [one for one in EVERY[name].params if isinstance(one, click.Option) and not one.hidden]
    shown = (rf"^ +({one.opts[0]}\b|.*, {one.opts[-1]}\b)" for one in options)
    assert all(re.search(pattern, said, re.MULTILINE) for pattern in shown)
    assert not re.search(r"^  \[\w+\]", said, re.MULTILINE), "a word has no row without a text"
    assert ("\nOutput:\n" in said) == any(one.name in OF_OUTPUT for one in options), "options are grouped"


# Shell completion: what the shells ask for, and bash itself.


@pytest.fixture
def on_the_path(tmp_path):
    """A directory with the program `ptanalyze` of this interpreter, for PATH."""
    script = tmp_path / "ptanalyze"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'ptanalyze'\n"
        "from ptanalyze.__main__ import main\nmain()\n"
    )
    script.chmod(0o755)
    return tmp_path


def environment(program, **more):
    return {"PATH": f"{program}:/usr/bin:/bin", "HOME": str(program), **more}


@pytest.fixture
def completed(capsys, monkeypatch):
    """What `ptanalyze` offers a shell for its last word; test_bash_completes asks a process of its own."""
    monkeypatch.setattr(sys, "argv", ["ptanalyze"])

    def offered(shell, *words):
        monkeypatch.setenv("COMP_WORDS", " ".join(["ptanalyze", *words]))
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        monkeypatch.setenv("_PTANALYZE_COMPLETE", f"{shell}_complete")
        assert run() == 0
        return capsys.readouterr().out

    return offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_subcommands_options_policies_and_machines_are_offered(completed, shell):
    assert "whatif" in completed(shell, "wh")
    assert "--baseline" in completed(shell, "whatif", "--b")
    assert "vmitosis-cascade-lake" in completed(shell, "whatif", "-m", "vm")
    offered = completed(shell, "whatif", "-p", "hy")
    assert "hydra" in offered and "mitosis" not in offered
    assert "ptemagnet+hydra" in completed(shell, "sweep", "-p", "ptemagnet+hy")
    assert "sapphire-rapids" in completed(shell, "machines", "sa")


def test_what_is_a_choice_is_offered(completed):
    assert "vm-numa-visible" in completed("bash", "classify", "vm-numa-v")
    assert "walks" in completed("bash", "whatif", "--weight", "wa")
    assert "mitosis,hydra" in completed("bash", "whatif", "-p", "mitosis,hy")
    assert "vmitosis" in completed("bash", "validate", "--paper", "vm")


def test_files_are_offered_where_no_machine_has_that_name(completed):
    assert completed("bash", "whatif", "-m", "./my").startswith("file")


def test_bash_completes(on_the_path):
    script = """
    export COMP_WORDS COMP_CWORD
    eval "$(_PTANALYZE_COMPLETE=bash_source ptanalyze)"
    complete -p ptanalyze
    COMP_WORDS=(ptanalyze doct); COMP_CWORD=1
    _ptanalyze_completion ptanalyze
    echo "${COMPREPLY[@]}"
    """
    words = ["bash", "-c", script]
    done = subprocess.run(words, env=environment(on_the_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "doctor"


def in_a_terminal(program, arguments, **more):
    """What a command writes to a terminal, byte for byte."""
    own, other = os.openpty()
    argv, env = [program / "ptanalyze", *arguments], environment(program, TERM="xterm-256color", **more)
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=other)
    os.close(other)
    out = b""
    try:
        while block := os.read(own, 1 << 16):
            out += block
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(own)
    assert process.wait() == 0
    return out.decode()


def test_colour_is_for_terminals_and_not_with_no_color(on_the_path):
    arguments = ["info", "lookup"]
    assert "\x1b[36m" in in_a_terminal(on_the_path, arguments)
    assert "\x1b[36m" not in in_a_terminal(on_the_path, arguments, NO_COLOR="1")
    words = [on_the_path / "ptanalyze", *arguments]
    piped = subprocess.run(words, env=environment(on_the_path, TERM="xterm-256color"), capture_output=True)
    assert piped.returncode == 0 and b"\x1b" not in piped.stdout


@pytest.mark.parametrize(("term", "encoding"), [("dumb", "UTF-8"), ("xterm", "ANSI_X3.4-1968")])
def test_bars_are_for_terminals_that_show_them(monkeypatch, capsys, term, encoding):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("locale.getencoding", lambda: encoding)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with terminal.progress_bar() as progress:
        progress(1, 2, "work")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [34, 40, 60, 72])
def test_rows_stay_rows_on_a_narrow_terminal(pt, sample, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, table, *_ = pt("whatif", sample, "-p", "mitosis,hydra").out.split("\n\n")
    lines = table.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["what", "first-touch", "mitosis", "hydra"]
    assert max(map(len, lines)) <= width and "speed-up" in lines[0]


def test_defaults_come_from_the_environment_and_what_is_typed_wins(pt, monkeypatch, sample):
    monkeypatch.setenv("PTANALYZE_WHATIF_MACHINE", "hydra-haswell")
    asked = "whatif", sample, "-p", "linux", "--json"
    both = pt(*asked), pt(*asked, "-m", "ice-lake")
    assert [json.loads(ran.out)["result"][0]["machine"] for ran in both] == ["hydra-haswell", "ice-lake"]


# Numbers in the environment that are none are as good as not set.

NO_WIDTH = ["", "0", "-5", "x", "1e9", "\u00b2", "9" * 18, "9" * 5000]


@pytest.mark.parametrize("value", NO_WIDTH, ids=lambda value: f"{value[:5]!a} {len(value)}")
def test_a_width_that_is_none_is_ignored(pt, monkeypatch, value):
    monkeypatch.delenv("COLUMNS")
    usual = pt("policies", "hydra")
    monkeypatch.setenv("COLUMNS", value)
    assert pt("policies", "hydra") == usual and usual.code == 0


def test_a_number_of_threads_that_is_none_is_ignored():
    command = [sys.executable, "-m", "ptanalyze", "policies", "hydra"]
    env = os.environ | {"NUMBA_NUM_THREADS": "-5"}
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_type_checkers_know_every_option():
    assert Keywords.__annotations__.keys() == Options.__annotations__.keys()
    for name, kind in Keywords.__annotations__.items():
        assert kind.__forward_arg__ == Options.__annotations__[name], name


def test_a_machine_file_that_lies_here_is_taken_unless_another_is_named(pt, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    own = synth(tmp_path / "own", "16M", accesses=1500, init_trace=False).directory
    model = msgspec.structs.replace(load_machine(DEFAULT_MACHINE), name="this-place")
    write_machine(tmp_path / "host.toml", model)

    def asked(*words):
        return pt("whatif", *words, "-p", "mitosis", "--json")

    assert "host.toml" in asked(own).err and {"this-place"} == machines_in(asked(own))
    assert machines_in(asked(own, "-m", DEFAULT_MACHINE)) == {DEFAULT_MACHINE}
    assert machines_in(asked("lookup")) == machines_in(asked("lookup", "-m", DEFAULT_MACHINE))


def test_a_capture_of_this_host_is_asked_about_this_host_which_is_said(pt, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    own = synth(tmp_path / "own", "16M", accesses=1500, init_trace=False).directory
    model = msgspec.structs.replace(load_machine(DEFAULT_MACHINE), name="this host", description="unmeasured")
    monkeypatch.setattr("ptanalyze_host.machine_file.captured_host", lambda capture: model)

    def asked(command, *words):
        return pt(command, *words, "--json")

    for command in (("whatif", "-p", "mitosis"), ("advise", "-p", "mitosis")):
        ran = asked(*command, own)
        assert "this host" in ran.out and "this host, unmeasured; " in ran.err and "--measure" in ran.err
    assert machines_in(asked("whatif", own, "-p", "mitosis", "-m", DEFAULT_MACHINE)) == {DEFAULT_MACHINE}
    assert machines_in(asked("whatif", "lookup", "-p", "mitosis")) == {DEFAULT_MACHINE}
    assert {*whatif(own, "mitosis")["machine"]} == {"this host"} != {*whatif("lookup", "mitosis")["machine"]}
    write_machine(tmp_path / "host.toml", msgspec.structs.replace(model, name="measured"))
    assert machines_in(asked("whatif", own, "-p", "mitosis")) == {"measured"}
    assert {*whatif(own, "mitosis")["machine"]} == {"measured"}


def machines_in(ran):
    return {row["machine"] for row in json.loads(ran.out)["result"]}
