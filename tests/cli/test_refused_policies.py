"""Every comparison names the policies that the capture does not allow, in all its forms, and goes on."""

import json
import shutil

import pytest

from ptanalyze.core.errors import bundled

COMPARISONS = {
    "whatif": (),
    "timeline": ("--windows", "3"),
    "sweep": ("--set", "placement=round-robin"),
}
BOTH = ("-p", "hydra", "-p", "vmitosis-replicate:mode=no-p")


@pytest.fixture(scope="module")
def oblivious(tmp_path_factory):
    copy = tmp_path_factory.mktemp("captures") / "oblivious"
    return shutil.copytree(bundled("samples") / "vm-numa-oblivious", copy)


def policies_of(command):
    return ("-p", "hydra", "-p", "linux") if command == "sweep" else BOTH


@pytest.mark.parametrize("command", COMPARISONS)
def test_a_refused_policy_is_named_in_a_line_and_the_others_compared(pt, oblivious, command):
    asked = (command, oblivious, *policies_of(command), *COMPARISONS[command])
    people, machine, table = pt(*asked), pt(*asked, "--json"), pt(*asked, "--csv")
    assert (people.code, machine.code, table.code) == (0, 0, 0)
    assert people.out.count("policy hydra: ") == 1
    whole = json.loads(machine.out)
    assert list(whole["refused"]) == ["hydra"] and "NUMA-oblivious" in whole["refused"]["hydra"]
    other = policies_of(command)[3]
    named = other if command == "timeline" else other.partition(":")[0]
    assert {row["policy"] for row in whole["result"]} == {named, "linux"}
    assert table.err.count("ptanalyze: policy hydra: ") == 1 and "hydra" not in table.out


@pytest.mark.parametrize("command", COMPARISONS)
def test_nothing_left_to_compare_is_an_error_of_one_line(pt, oblivious, command):
    ran = pt(command, oblivious, "-p", "hydra", "-p", "mitosis", *COMPARISONS[command])
    assert ran.code == 2 and ran.out == "" and "mode=no-p" in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize("command", COMPARISONS)
def test_without_a_policy_an_oblivious_guest_gets_those_that_it_allows(pt, oblivious, command):
    ran = pt(command, oblivious, *COMPARISONS[command], "--json")
    whole = json.loads(ran.out)
    assert ran.code == 0 and "refused" not in whole
    named = {row["policy"].partition(":")[0] for row in whole["result"]}
    assert named == {"linux", "vmitosis-migrate", "vmitosis-replicate"}
    assert pt(command, "sysbench-memory", *COMPARISONS[command]).code == 0


def test_advice_for_an_oblivious_guest_replicates_without_its_help_and_says_what_it_cannot(pt, oblivious):
    result = json.loads(pt("advise", oblivious, "--json").out)["result"]
    ranked = {row["policy"]: row for row in result["ranked"]}
    assert "mode=no-p" in ranked["vmitosis-replicate"]["params"]
    for name in ("mitosis", "steering", "hydra", "hydra-2d", "hydra+vmitosis-replicate"):
        assert "NUMA-oblivious" in result["refused"][name] and name not in ranked
    view = pt("advise", oblivious).out
    assert view.count("hydra-2d") == 1


def test_of_many_refused_policies_the_first_screen_names_which_and_full_says_why(pt, oblivious):
    asked = ("whatif", oblivious, "-p", "linux,mitosis,steering,wasp,hydra")
    screen, full = pt(*asked).out, pt(*asked, "--full").out
    assert "Not for this capture: mitosis, steering, wasp, hydra (--full says why)." in screen
    assert "NUMA-oblivious" not in screen.partition("Next")[0].partition("Not for")[2]
    assert full.count("policy wasp: ") == 1


FEWER = (
    "vm-numa-visible",
    "-m",
    "ice-lake",
    "--threads-to-nodes",
    "round-robin",
    "--baseline",
    "first-touch",
)


def test_tables_on_nodes_that_the_machine_lacks_are_no_error_of_the_program_s_own(pt):
    """Whether a policy copies from captured tables or keeps them: refused, or it needs neither."""
    names = [row["name"] for row in json.loads(pt("policies", "--json").out)["result"]]
    for name in dict.fromkeys(names):
        ran = pt("whatif", *FEWER, "-p", name)
        assert ran.code in (0, 2), (name, ran.err)
        assert ran.code == 0 or (ran.err.count("\n") == 1 and ran.err.startswith("ptanalyze: policy ")), name


@pytest.mark.parametrize("policy", ["mitosis", "vmitosis-replicate", "steering"])
def test_a_copy_from_a_node_that_the_machine_lacks_is_refused_in_a_line(pt, policy):
    ran = pt("whatif", *FEWER, "-p", policy)
    assert (
        ran.code == 2 and f"policy {policy}: gpt.tables: node = 3: machine ice-lake has nodes 0..1" in ran.err
    )
