"""Answers about live processes without a trace, and about the bundled VMs."""

import json
import re
import shutil

import pytest

from captures import one_node_capture
from ptanalyze.analysis.setup import Setup
from ptanalyze.core.errors import bundled
from ptanalyze.core.machine import load_machine, sharing
from ptanalyze_report import change
from ptanalyze_report.cautions import alone, cautions, glance
from ptanalyze_report.change import everything, side_by_side
from ptanalyze_report.change import lead as policies_differ
from ptanalyze_report.change import lead_compared as lead
from ptanalyze_report.study import studies

# Answers about live processes: what pages count by, which machine they are about, no run time anywhere.

ELSEWHERE = "this is about the machine model vmitosis-cascade-lake (4 nodes), not about the captured host"
TINY = "0.00001"  # share of the LLC: one set, fewer lines than either capture has
FITS = "fit the caches: placement can gain next to nothing."
FROM_DRAM = "if every leaf entry is read from DRAM"
EQUALLY = "The program is taken to walk equally from 4 nodes."


@pytest.fixture(scope="module")
def hot(tmp_path_factory):
    return one_node_capture(tmp_path_factory.mktemp("hot") / "hot")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return one_node_capture(tmp_path_factory.mktemp("plain") / "plain", heat=False)


@pytest.fixture(scope="module")
def tiny():
    return Setup.of(machine=sharing(load_machine("vmitosis-cascade-lake"), TINY))


@pytest.fixture(scope="module")
def study(hot, tiny):
    (found,) = studies([hot], tiny)
    return found


@pytest.fixture(scope="module")
def fitting(hot):
    (found,) = studies([hot], Setup.of())
    return found


def one_line(text):
    return " ".join(text.split())


def test_walks_are_those_that_were_estimated_times_the_nodes_that_do_them(once, hot):
    walks = int(hot.snapshot.heat.walks.sum())
    assert f"{walks:,} from each of 4 nodes, {4 * walks:,} walks" in once("whatif", hot.directory).out


def test_where_there_is_no_run_time_the_table_has_walk_cycles_and_nothing_to_narrow(once, hot):
    said = once("whatif", hot.directory, "-p", "mitosis,interleave", "--cache-share", TINY).out
    assert "speed-up" not in said and "break-even" not in said and "calibrate" not in said
    less = said.partition("With mitosis at most ")[2].partition(" % fewer walk cycles")[0]
    row = next(line for line in said.splitlines() if line.startswith(" mitosis"))
    assert f"at most -{less} %" in row and float(less) > 10


@pytest.mark.parametrize("command", [("whatif", "-p", "mitosis"), ("advise",)])
def test_where_the_caches_hold_all_leaf_entries_placement_gains_nothing_and_nothing_is_advised(
    once, hot, plain, command
):
    name, *options = command
    for capture, kib in ((hot, 2), (plain, 4)):
        said = one_line(once(name, capture.directory, *options).out)
        assert f"Its leaf entries, {kib} KiB of page-table lines, {FITS}" in said
        assert "Best" not in said and "estimated at" not in said
        assert "with mitosis" not in said.lower() and "placement alone" not in said.lower()
        assert re.search(r" mitosis +about 0 % ", said)


def test_larger_pages_may_gain_where_the_caches_hold_all_leaf_entries(once, plain):
    said = one_line(once("whatif", plain.directory, "-p", "mitosis,thp:min_pages=1").out)
    assert " mitosis about 0 % " in said and "at most -99.8 %" in said and f"at most: {FROM_DRAM}." in said
    assert FITS in said and f"With thp at most 99.8 % fewer walk cycles than linux, {FROM_DRAM}" in said
    assert "placement alone" not in said


def test_larger_pages_are_refused_under_heat_with_the_way_out_and_doubted_without(once, hot, plain):
    assert "--weight leaf" in once("whatif", hot.directory, "-p", "thp").err
    assert "--weight leaf ranks thp too" in once("advise", hot.directory).out
    doubt = "Each mapped page counts once, used or not"
    assert doubt in once("whatif", plain.directory, "-p", "thp:min_pages=1").out
    assert doubt not in once("whatif", plain.directory, "-p", "mitosis").out


def test_the_reports_numbers_are_bounds_and_it_advises_nothing(study, fitting):
    card = glance(study)[-1]
    assert card.value == "at most 40.3 %" and card.what == "fewer walk cycles with mitosis"
    assert card.more == f"{FROM_DRAM}. {EQUALLY}" and not any(
        one.value.endswith("x") for one in glance(study)
    )
    assert study.sentence.startswith("No recommendation without a trace: with mitosis at most 40.3 % fewer")
    assert "mitosis at most 40.3 % fewer walk cycles" in change.research(study)
    table = everything(study)
    assert "advised" not in table.marked.values() and "at most" in table.columns[1].hint
    assert "Speed-ups" not in policies_differ(study) and FROM_DRAM in policies_differ(study)
    assert "none, as there is no run time" in lead([study, study])
    assert [row[-2].text for row in side_by_side([study]).rows] == ["–"]
    assert any("of walk cycles is a bound" in caution.text for caution in cautions(study))
    held = glance(fitting)[-1]
    assert (held.value, held.what) == ("nothing", "to gain by placement") and held.more.endswith(FITS)
    assert fitting.sentence == held.more and not change.today(fitting) and not alone(fitting)
    assert "No policy of a research kernel is estimated to gain" in change.research(fitting)


# The bundled VM captures: lookups in a guest that sees the host's four nodes, and in one that does not.

VISIBLE, OBLIVIOUS = "vm-numa-visible", "vm-numa-oblivious"
CLASSES = ("Local-Local", "Local-Remote", "Remote-Local", "Remote-Remote")
SOCKETS = range(4)


@pytest.fixture(scope="module")
def vms(tmp_path_factory):
    """{name: copy of the capture}, so that their caches are the tests' own."""
    place = tmp_path_factory.mktemp("vms")
    return {name: shutil.copytree(bundled("samples") / name, place / name) for name in (VISIBLE, OBLIVIOUS)}


@pytest.fixture(params=[VISIBLE, OBLIVIOUS])
def vm(vms, request):
    return vms[request.param]


def result(ran):
    assert ran.code == 0, ran
    return json.loads(ran.out)["result"]


def shares(table):
    """{class: [share seen from each socket]} of one of classify's tables."""
    found = {(row["class"], row["socket"]): row["share"] for row in table["rows"]}
    return {name: [found[name, socket] for socket in SOCKETS] for name in CLASSES}


def test_info_tells_both_tables_the_vcpus_and_the_trace(once, vm):
    info = result(once("info", vm, "--json"))
    assert info["machine"]["NUMA nodes"] == 4
    assert info["VM"]["vCPUs"] == 4
    assert [info["VM"][f"vCPUs on node {node}"] for node in SOCKETS] == [1] * 4
    for table in ("gPT", "ePT"):
        assert info[table]["levels"] == 4 and info[table]["tables at level 1"] > 50
        assert all(info[table][f"tables on node {node}"] > 0 for node in SOCKETS)
    assert info["trace"]["command"] == "lookup"
    assert info["trace"]["dropped touches"] == info["trace"]["lost bytes"] == 0


def test_every_guest_frame_is_in_the_hosts_table(once, vm):
    fit = result(once("info", vm, "--json"))["host and guest"]
    assert fit["guest tables: frames"] == fit["guest tables: mapped"] > 50
    assert fit["guest pages: frames"] == fit["guest pages: mapped"] > 10_000


def test_they_say_whether_the_guest_sees_numa(once, vms):
    seen = {name: result(once("info", vm, "--json"))["host and guest"] for name, vm in vms.items()}
    assert seen[VISIBLE]["guest sees NUMA"] == "4 nodes"
    assert seen[OBLIVIOUS]["guest sees NUMA"] == "no"


def test_they_pass_every_check(once, vm):
    ran = once("check", vm)
    assert ran.code == 0, ran.out
    _, said, _ = ran.out.split("\n\n")
    every = result(once("check", vm, "--json"))
    assert {one["verdict"] for one in every} == {"ok"} and said == f"usable: {len(every)} checks passed"


def test_no_path_of_the_recording_machine_is_in_them(vm):
    for file in vm.iterdir():
        if file.is_file() and file.suffix != ".entries":
            content = file.read_bytes()
            assert not [word for word in (b"/work", b"/root", b"/dev/shm/", b"/home") if word in content], (
                file
            )


def test_each_socket_sees_four_classes_that_add_up(once, vm):
    for table in result(once("classify", vm, "--json")):
        found = shares(table)
        assert [sum(found[name][socket] for name in CLASSES) for socket in SOCKETS] == pytest.approx([1] * 4)


def test_mapped_pages_are_the_same_whoever_looks(once, vm):
    pages = result(once("classify", vm, "--json"))[0]
    found = shares(pages)
    for local in (("Local-Local", "Local-Remote"), ("Local-Local", "Remote-Local")):
        assert sum(sum(found[name]) for name in local) == pytest.approx(1)  # every table is on one node


def test_an_oblivious_guest_has_almost_no_local_local(once, vms):
    """vMitosis, section 2.2: with N sockets and no knowledge of them, about 1 page in N^2 for each socket.

    Some 200 guest tables and 270 nested ones are few: the shares are a percent or two off 1/16.
    """
    seen = {name: shares(result(once("classify", vm, "--json"))[0]) for name, vm in vms.items()}
    assert seen[OBLIVIOUS]["Local-Local"] == pytest.approx([1 / 16] * 4, abs=0.03)
    assert min(seen[OBLIVIOUS]["Remote-Remote"]) > 0.45
    assert sum(seen[VISIBLE]["Local-Local"]) > 1.8 * sum(seen[OBLIVIOUS]["Local-Local"])


def test_gpt_and_ept_are_local_together_where_the_guest_sees_nodes(once, vms):
    mean = {}
    for name, vm in vms.items():
        together = result(once("classify", vm, "--json"))[0]["together"]
        mean[name] = sum(row["correlation"] for row in together) / len(together)
    assert abs(mean[OBLIVIOUS]) < 0.2
    assert mean[VISIBLE] > 0.5


def test_every_workers_vcpu_walks_in_every_class(once, vm):
    """Each of four workers looks up 12,280 keys twice, almost all of which miss the TLBs."""
    rows = result(once("classify", vm, "--json"))[1]["rows"]
    for socket in SOCKETS:
        counts = [row["count"] for row in rows if row["socket"] == socket]
        assert sum(counts) == pytest.approx(2 * 12280, rel=0.01) and len(counts) == 4 and min(counts) > 500


def test_walk_reads_both_tables(once, vm):
    walk = result(once("walk", vm, "0x4000000000", "--json"))
    assert len(walk["steps"]) == 24
    assert [step["level"] for step in walk["steps"] if step["dimension"] == "gPT"] == [4, 3, 2, 1]


def test_whatif_replicates_either_dimension_or_both(once, vms):
    vm = vms[VISIBLE]
    policies = ("linux", "mitosis", "hydra", "vmitosis-replicate")
    found = result(once("whatif", vm, "--json", *(word for name in policies for word in ("-p", name))))
    linux, mitosis, hydra, both = found
    assert [each["policy"] for each in found] == list(policies)
    for each in found:
        split = [each[f"leaf_{name}_share"] for name in ("LL", "LR", "RL", "RR")]
        assert sum(split) == pytest.approx(1)
        assert each["walks"] == linux["walks"] == pytest.approx(8 * 12280, rel=0.01)
    assert both["leaf_LL_share"] == 1 and both["remote_reads"] == 0
    assert mitosis["leaf_RL_share"] == mitosis["leaf_RR_share"] == 0
    assert linux["leaf_LL_share"] < hydra["leaf_LL_share"] <= mitosis["leaf_LL_share"] < 1
    assert linux["pt_bytes"] < hydra["pt_bytes"] < mitosis["pt_bytes"] == both["pt_bytes"]
    for each in (mitosis, hydra, both):
        assert each["speedup_low"] > 1.05, "the answer must not be that nothing gains"
    assert both["speedup"] - 1 > 2 * (mitosis["speedup"] - 1), "the nested leaf lines are read from DRAM too"


def test_an_oblivious_guest_gains_as_much_by_groups_of_vcpus(once, vms):
    asked = ("-p", "vmitosis-replicate", "--set", "mode=no-f")
    groups = result(once("whatif", vms[OBLIVIOUS], "--json", *asked))[-1]
    nodes = result(once("whatif", vms[VISIBLE], "--json", "-p", "vmitosis-replicate"))[-1]
    assert groups["remote_reads"] == 0
    assert groups["speedup"] == pytest.approx(nodes["speedup"], abs=0.02)
