"""A policy from outside, as analyzer/docs/add-a-policy.md shows it: it runs, and counts what it should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ptanalyze

PAGE = Path(ptanalyze.__file__).parents[1] / "docs" / "add-a-policy.md"


@pytest.fixture
def package(tmp_path):
    """A directory that is, put on PYTHONPATH, an installed distribution with the page's policy."""
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
    command = [sys.executable, "-m", "ptanalyze", *arguments]
    environment = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": str(package)}
    done = subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_a_policy_in_sixty_lines():
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert len(code.splitlines()) <= 60


def test_it_is_listed_with_what_it_does(package):
    assert "interior tables on every node" in asked(package, "policies", "interior-replicas")


def test_it_is_replayed_beside_ours_and_makes_upper_levels_local(package):
    from io import StringIO

    import pandas

    out = asked(package, "whatif", "-p", "interior-replicas", "-p", "mitosis", "--baseline", "linux", "--csv")
    linux, ours, mitosis = pandas.read_csv(StringIO(out)).to_dict("records")
    assert ours["policy"] == "interior-replicas"
    assert mitosis["remote_reads"] == 0 < ours["remote_reads"] < linux["remote_reads"]
    assert ours["leaf_LL_share"] == linux["leaf_LL_share"]
    assert 0 < ours["pt_bytes_extra"] < mitosis["pt_bytes_extra"]
