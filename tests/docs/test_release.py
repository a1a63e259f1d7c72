"""What a release has to say: licences of all that it needs, and one version everywhere."""

import sys
import tomllib

from pages import DOCS

from ptanalyze import __version__

sys.path.insert(0, str(DOCS / "_ext"))

from licences import PROJECT, normal


def test_every_dependency_and_its_licence_are_on_the_page():
    page = (DOCS / "reference/licences.md").read_text()
    rows = {
        words[1].strip(): words[2].strip() for line in page.splitlines() if len(words := line.split("|")) > 3
    }
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {normal(text) for texts in wanted for text in texts} - {"ptanalyze", "ptanalyze-native"}
    assert len(names) > 20 and names <= rows.keys() and all(rows.values())


def test_the_citation_and_the_extra_of_native_tools_name_this_version():
    assert f"\nversion: {__version__}\n" in (PROJECT.parent / "CITATION.cff").read_text()
    (native,) = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["native"]
    assert native.startswith(f"ptanalyze-native>={__version__.rpartition('.')[0]},")
