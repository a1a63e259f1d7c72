"""A policy from outside, as analyzer/docs/add-a-policy.md shows it: it runs, and counts what it should."""

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pandas
import pytest

import ptanalyze

PAGE = Path(ptanalyze.__file__).parents[1] / "docs" / "add-a-policy.md"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A directory that is, put on PYTHONPATH, an installed distribution with the page's policy."""
    tmp_path = tmp_path_factory.mktemp("outside")
    page = PAGE.read_text()
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "interior_replicas.py").write_text(
        re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    )
    about = tmp_path / "my_package-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1\n")
    entry = re.search(r"```toml\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)\n```", page, re.DOTALL)
    (about / "entry_points.txt").write_text(f"[{entry[1]}]\n{entry[2].replace(chr(34), '')}\n")
    return tmp_path


def asked(package, *arguments):
    paths = f"{package}:{Path(ptanalyze.__file__).parents[1]}"
    command = [sys.executable, "-m", "ptanalyze", *map(str, arguments)]
    environment = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": str(package)}
    done = subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_listed_with_what_it_does(package):
    assert "interior tables on every node" in asked(package, "policies", "interior-replicas")


def replayed(package, names, *arguments):
    """{policy: its row of whatif}; each policy's loop is compiled anew."""
    out = asked(package, "whatif", *arguments, "-p", names, "--baseline", "linux", "--csv")
    return {row["policy"]: row for row in pandas.read_csv(StringIO(out)).to_dict("records")}


@pytest.fixture(scope="module")
def rows(package):
    return replayed(package, "interior-replicas,leaf-replicas,every-table,mitosis")


def test_copies_of_interior_tables_make_upper_levels_local(rows):
    linux, ours, mitosis = rows["linux"], rows["interior-replicas"], rows["mitosis"]
    assert mitosis["remote_reads"] == 0 < ours["remote_reads"] < linux["remote_reads"]
    assert ours["leaf_LL_share"] == linux["leaf_LL_share"]
    assert 0 < ours["pt_bytes_extra"] < mitosis["pt_bytes_extra"]


def test_copies_of_leaf_tables_make_leaves_local(rows):
    linux, ours, mitosis = rows["linux"], rows["leaf-replicas"], rows["mitosis"]
    assert linux["leaf_LL_share"] < ours["leaf_LL_share"] == 1
    assert mitosis["walk_cycles"] <= ours["walk_cycles"] < linux["walk_cycles"]


def test_copies_made_at_the_start_cost_what_they_cost_mitosis(rows):
    parts = [rows[name]["once_cycles"] for name in ("interior-replicas", "leaf-replicas")]
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(rows["every-table"]["once_cycles"])


def test_a_copy_of_every_table_everywhere_is_mitosis(package, rows):
    """Warm, of a region that only reads; and as traced, of one that maps, unmaps, protects and moves."""
    made = package / "made"
    events = ("--mprotect-every", "500", "--munmap-every", "700")
    asked(package, "synth", "-o", made, "--size", "16M", "--accesses", "4000", *events)
    for found in (rows, replayed(package, "every-table,mitosis", made, "--cold")):
        ours, mitosis = ({**found[name], "policy": "", "params": ""} for name in ("every-table", "mitosis"))
        assert mitosis["tables_new"] + mitosis["once_cycles"] > 0
        assert {key: ours[key] for key in ours if pandas.notna(ours[key])} == {
            key: mitosis[key] for key in mitosis if pandas.notna(mitosis[key])
        }
