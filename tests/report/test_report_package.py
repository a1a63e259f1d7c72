"""What a report is made of travels with the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import ptanalyze

PACKAGE = Path(ptanalyze.__file__).parent


def test_the_wheel_carries_template_style_script_and_glossary(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    subprocess.run(build, cwd=PACKAGE.parents[1], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("ptanalyze/show/report/")}
    here = {
        f"ptanalyze/show/report/{path.name}"
        for path in (PACKAGE / "show" / "report").iterdir()
        if path.is_file()
    }
    assert inside == here
    assert {Path(name).suffix for name in inside} == {".py", ".html", ".css", ".js", ".toml"}
