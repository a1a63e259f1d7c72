"""Each subcommand on the bundled capture, as a new user would call it."""

import json
import re
import subprocess
import sys

import pytest

from one_line import is_one_line
from ptanalyze.cli import ENTRIES


@pytest.mark.parametrize("name", ENTRIES)
def test_every_command_explains_itself(pt, name):
    ran = pt(name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: ptanalyze {name}")
    assert len(ran.out.splitlines()) > 5


def test_help_imports_nothing_slow():
    code = (
        "import sys; from ptanalyze.cli import run; run(['--help']); "
        "print([m for m in ('numpy', 'numba', 'pandas', 'pyarrow', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_info_counts_tables_threads_and_touches(pt, sample):
    result = json.loads(pt("info", sample, "--json").out)["result"]
    assert result["trace"]["threads"] == 5
    assert result["trace"]["merged touches"] > 10**6
    assert result["page table"]["table pages"] == sum(
        result["page table"][f"tables at level {level}"] for level in (1, 2, 3, 4)
    )
    assert "NUMA nodes" in pt("info", sample).out


@pytest.mark.parametrize("capture", ["sysbench-memory", "vm-numa-visible"])
def test_info_and_classify_agree_on_what_is_mapped_once_the_tracers_pages_are_taken_off(pt, capture):
    facts = json.loads(pt("info", capture, "--json").out)["result"]
    table = facts.get("page table") or facts["gPT"]
    [counted] = json.loads(pt("classify", capture, "--weight", "leaf", "--json").out)["result"]
    seen = sum(row["count"] for row in counted["rows"] if row["socket"] == 0)
    sizes = ("4 KiB pages", "2 MiB pages", "1 GiB pages")
    own = sum(table.get(f"{size}, the tracer's", 0) for size in sizes)
    assert own and own == counted["tracers"]
    assert seen + sum(counted["unresolved"].values()) + own == sum(table[size] for size in sizes)


def test_info_shows_pids_and_instants_as_people_do(pt):
    shown = pt("info", "sysbench-memory")
    assert shown.code == 0 and "exit status" in shown.out
    assert "\nhow the tables were read " in shown.out and "how sure" not in shown.out
    pid = json.loads(pt("info", "sysbench-memory", "--json").out)["result"]["how sure"]["pid"]
    assert re.search(rf"pid +{pid} ", shown.out)
    for what in ("recording", "tracing", "reading"):
        assert len(re.findall(rf"{what} began +2026-\d\d-\d\dT\d\d:\d\d:\d\d", shown.out)) == 1
    for what in ("recording took", "reading took", "trace spans"):
        assert len(re.findall(rf"{what} \(s\) +[\d.]+ ", shown.out)) == 1, "a duration says of what it is"
    assert not re.search(r"^ (seconds|started|time|duration s) ", shown.out, re.MULTILINE)


def test_the_bundled_capture_passes_every_check(pt, sample):
    ran = pt("check", sample)
    assert ran.code == 0
    *checks, empty, last = ran.out.splitlines()
    assert all(line.split()[0] == "ok" for line in checks)
    assert (empty, last) == ("", f"usable: {len(checks)} checks passed")


def test_one_flipped_bit_fails_the_check(pt, own_sample):
    content = bytearray((own_sample / "trace.ptt").read_bytes())
    content[len(content) // 2] ^= 4
    (own_sample / "trace.ptt").write_bytes(content)
    ran = pt("check", own_sample)
    assert ran.code == 1
    assert "trace.ptt: CRC-32" in ran.out


def test_walk_explains_a_mapped_and_an_unmapped_address(pt, sample):
    mapped = pt("walk", sample, "0x4000000000")
    assert mapped.code == 0
    assert "4 reads" in mapped.out and "PT level 1" in mapped.out and "0: local" in mapped.out
    steps = json.loads(pt("walk", sample, "0x4000000000", "--json").out)["result"]["steps"]
    assert [step["level"] for step in steps] == [4, 3, 2, 1]
    unmapped = pt("walk", sample, "0x1000")
    assert unmapped.code == 1
    assert "not mapped" in unmapped.out


def test_classify_weights_by_pages_and_by_walks(pt, sample):
    pages, walks = json.loads(pt("classify", sample, "--json").out)["result"]
    assert {row["share"] for row in pages["rows"] if row["class"] == "Local"} == {1.0}
    local = {row["socket"]: row["share"] for row in walks["rows"] if row["class"] == "Local"}
    assert local == {0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0}
    assert pt("classify", sample, "--by", "thread").out.count("thread ") >= 4
    assert " sysbench" in pt("classify", sample, "--by", "vma").out


def test_whatif_compares_policies_with_the_baseline(pt, sample):
    ran = pt("whatif", sample, "-p", "mitosis", "-p", "hydra", "--cold", "--json")
    assert ran.code == 0
    baseline, mitosis, hydra = json.loads(ran.out)["result"]
    assert baseline["policy"] == "first-touch" and baseline["speedup"] == 1
    assert mitosis["leaf_LL_share"] == 1
    assert mitosis["pt_bytes"] == 4 * baseline["pt_bytes"]
    assert baseline["leaf_LL_share"] < hydra["leaf_LL_share"] == 1
    assert baseline["pt_bytes"] < hydra["pt_bytes"] < mitosis["pt_bytes"]
    assert hydra["dram_reads"] == mitosis["dram_reads"] == baseline["dram_reads"] > 0


def test_whatif_compares_the_steady_state_where_hydra_has_copied_all_that_is_walked(pt, sample):
    ran = pt("whatif", sample, "-p", "mitosis", "-p", "hydra", "--json")
    baseline, mitosis, hydra = json.loads(ran.out)["result"]
    assert baseline["leaf_LL_share"] < hydra["leaf_LL_share"] == mitosis["leaf_LL_share"] == 1
    assert hydra["once_cycles"] > 0 == hydra["replica_faults"]


def test_whatif_prints_a_row_a_policy_and_what_it_assumed(pt, sample):
    ran = pt("whatif", sample, "-p", "hydra", "--set", "prefetch=0", "--full")
    assert ran.code == 0
    assert ran.err == ""
    assert "first-touch" in ran.out and "prefetch=0" in ran.out and "recorded on one node" in ran.out


def test_results_do_not_depend_on_the_number_of_threads(pt, own_sample, tmp_path):
    one = pt("whatif", own_sample, "-p", "hydra", "-p", "mitosis", "--csv", "--threads", 1).out
    two = pt("whatif", own_sample, "-p", "hydra", "-p", "mitosis", "--csv", "--threads", 2).out
    assert one == two and one.count("\n") == 4


def test_results_are_written_as_parquet(pt, sample, tmp_path):
    import pandas

    file = tmp_path / "result.parquet"
    assert pt("whatif", sample, "-p", "ideal", "-o", file).code == 0
    assert list(pandas.read_parquet(file)["policy"]) == ["first-touch", "ideal"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_a_capture_the_newest_here_is_taken_else_the_sample(pt, sample, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "no capture here, so the bundled sample: lookup" in pt("info").err
    monkeypatch.chdir(sample.parent)
    assert "newest capture here: sample" in pt("info").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["whatif", "-p", "wonder"], "policy wonder: no such policy; there are: linux, first-touch"),
        (["whatif", "-p", "hydra", "--set", "depth=3"], "depth=3: no policy asked for has this parameter"),
        (["whatif", "-p", "hydra", "--set", "prefetch=12"], "prefetch = 12"),
        (["whatif", "-p", "hydra", "--set", "prefetch"], "write KEY=VALUE"),
        (["whatif", "-p", "hydra", "-m", "abacus"], "machine abacus: unknown; there are: "),
        (["whatif", "-p", "hydra", "-o", "x.tsv"], "name it FILE.json, FILE.csv or FILE.parquet"),
        (["whatif", "-p", "hydra", "--threads-to-nodes", "0,9"], "9"),
        (["classify", "--by", "thread", "--weight", "4k"], "pages have no thread"),
        (["walk", "0x1ffffffffffffff"], "outside what 4 levels map"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(pt, sample, arguments, message):
    command, *rest = arguments
    ran = pt(command, sample, *rest)
    assert is_one_line(ran, 2)
    assert message in ran.err


def test_a_directory_that_is_no_capture_is_one_line(pt, tmp_path):
    assert is_one_line(pt("info", tmp_path), 2)
    assert is_one_line(pt("whatif", tmp_path / "nothing", "-p", "hydra"), 2)


def test_a_wrong_option_is_clicks_own_usage_error(pt, sample):
    ran = pt("whatif", sample, "--policies", "hydra")
    assert ran.code == 2 and "No such option" in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda text: text.replace("ghz = ", "gigahertz = ", 1), "gigahertz"),
        (lambda text: text.replace("idle = [\n  [", "idle = [\n  [-", 1), "latency.idle[0][0]"),
        (lambda text: text + "\n[[[", "TOML"),
    ],
)
def test_a_wrong_machine_file_names_its_field(pt, sample, tmp_path, damage, field):
    from ptanalyze.core.errors import bundled

    text = (bundled("models") / "machines/vmitosis-cascade-lake.toml").read_text()
    assert damage(text) != text
    (tmp_path / "m.toml").write_text(damage(text))
    ran = pt("whatif", sample, "-p", "hydra", "-m", tmp_path / "m.toml")
    assert is_one_line(ran, 2)
    assert "m.toml" in ran.err and field in ran.err


def test_policies_and_machines_are_listed_with_their_sources(pt):
    assert {policy["name"] for policy in json.loads(pt("policies", "--json").out)["result"]} >= {
        "linux", "first-touch", "interleave", "ideal", "mitosis", "hydra",
    }  # fmt: skip
    names = [machine["name"] for machine in json.loads(pt("machines", "--json").out)["result"]]
    assert "vmitosis-cascade-lake" in names
    assert "sources" in pt("machines", "hydra-haswell").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(pt, shell):
    assert "ptanalyze" in pt("completion", shell).out


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


@pytest.mark.parametrize("name", ["trace.ptt", "gpt.entries", "gpt.tables", "maps", "snapshot.json"])
def test_a_file_cut_short_is_named_with_its_sizes(pt, own_sample, name):
    whole = (own_sample / name).stat().st_size
    with open(own_sample / name, "r+b") as file:
        file.truncate(whole // 2)
    ran = pt("whatif", own_sample, "-p", "hydra")
    assert is_one_line(ran, 1)
    assert f"{name}: contents = {whole // 2} bytes, sealed with {whole}: damaged" in ran.err


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
    argv = [sys.executable, "-c", INTERRUPTED.format(at=at)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.stderr == "ptanalyze: interrupted\n" and done.returncode == 130
    early = done.stdout.split()
    assert early and all(name.startswith("ptanalyze") for name in early), "heeded only by Python itself"
