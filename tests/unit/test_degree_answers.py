"""What the degree chooser says of a capture: its table, its record, its settings, and what it refuses."""

import pytest

import ptanalyze
from ptanalyze.analysis.degrees import NODE, ONE, as_record, chosen, rows, sentence
from ptanalyze.analysis.degrees import settings as settings_of
from ptanalyze.analysis.setup import Setup
from ptanalyze.core.errors import UsageError
from ptanalyze.show.advise import setting_lines


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("degrees") / "app"
    return ptanalyze.synth(
        place, "16M", threads=4, accesses=6000, init="single", init_trace=False, scale=1000
    )


def test_the_table_has_a_row_per_vma_tier_and_degree_and_one_choice_per_vma(made):
    table = ptanalyze.degrees(made, repeat=5)
    vmas = table["vma"].unique()
    assert len(table) == 11 * len(vmas) and vmas[-1] == "process"
    assert (table.groupby("vma")["chosen"].sum() == 1).all()
    assert table.loc[table["tier"] == ONE, "degree"].isna().all()
    assert (table["bound_cycles"] <= table["cycles"] + 1e-6).all()
    assert table.attrs["units"]["cycles"] == "cycles" and table.attrs["sentence"]
    assert table.attrs["settings"]["hydra"]["repl_order"] in range(10)


def test_json_says_the_same_with_null_for_never(made):
    found = chosen(made, Setup.of(), "first", 0)
    record = as_record(found)
    assert [row["cycles"] for row in record["vmas"]] == [row["cycles"] for row in rows(found)]
    never = [row["pays_back_runs"] for row in record["vmas"] if row["vma"] == "process"]
    assert set(never) == {None}


def test_settings_are_those_of_the_cheapest_point(made):
    found = chosen(made, Setup.of(), "first", 1e6)
    known = settings_of(found)
    assert found.overall.tier == NODE and known["wasp"] == [0, 1, 2, 3]
    order = found.overall.degree
    assert known["hydra"]["commands"][0] == f"echo {order} > /proc/hydra/repl_order"
    assert known["numactl"] == "numactl --cpunodebind=0,1,2,3 --pgtablerepl=0,1,2,3 -- COMMAND"
    alone = chosen(made, Setup.of(threads_on="2,2,2,2"))
    assert settings_of(alone)["numactl"] == "numactl --cpunodebind=2 --membind=2 -- COMMAND"
    assert "No entry is ever copied" in sentence(chosen(made, Setup.of(threads_on="0,0,0,0")))


def test_where_one_copy_is_cheapest_the_settings_of_hydras_kernel_say_so(made):
    alone, copies = chosen(made, Setup.of(threads_on="0,0,0,0")), chosen(made, Setup.of(), "first", 1e6)
    said = "one copy costs less, without its kernel)"
    assert setting_lines(alone)[0].endswith(said) and not setting_lines(copies)[0].endswith(said)


def test_a_trace_so_short_that_the_caches_hold_its_lines_says_so(tmp_path):
    app = ptanalyze.synth(
        tmp_path / "app", "256M", threads=4, accesses=6000, init="single", init_trace=False, scale=20
    )
    found = chosen(app, Setup.of())
    assert any("the caches hold what a short region reads" in note for note in found.known.notes)


def test_of_threads_that_move_only_the_trace_is_counted(made):
    found = chosen(made, Setup.of(move_threads="0:1@50%"))
    assert all(not point.again.walks.any() for point in found.known.points)
    assert "nothing is said of a longer run" in sentence(found)


def test_a_filter_of_shootdowns_is_chosen_where_there_are_any(tmp_path):
    app = ptanalyze.synth(
        tmp_path / "app", "8M", threads=4, accesses=4000, sharing="private", mapped_by="threads",
        munmap_every=500, init_trace=False,
    )  # fmt: skip
    found = chosen(app, Setup.of())
    off, single = (found.known.filters[name].traced.management.sum() for name in ("off", "single"))
    assert single < off and settings_of(found)["hydra"]["tlbflush_opt"] in (1, 2)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prefetch_on": "never"}, "prefetch_on = never: first or every"),
        ({"repeat": -1}, "repeat = -1: 0 to 1e"),
        ({"repeat": float("nan")}, "repeat = nan"),
        ({"repeat": float("inf")}, "repeat = inf"),
        ({"repeat": 2, "move_threads": "0:1@50%"}, "repeat = 2: threads that move"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(made, asked, said):
    with pytest.raises(UsageError) as caught:
        ptanalyze.degrees(made, **asked)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_capture_without_a_trace_and_a_vm_that_hides_its_nodes_are_refused(tmp_path):
    still = ptanalyze.synth(tmp_path / "still", "8M", trace=False)
    with pytest.raises(UsageError, match="holds no trace"):
        ptanalyze.degrees(still)
    flat = ptanalyze.synth(tmp_path / "flat", "8M", guest="oblivious", accesses=1000)
    with pytest.raises(UsageError, match="NUMA-oblivious"):
        ptanalyze.degrees(flat)
