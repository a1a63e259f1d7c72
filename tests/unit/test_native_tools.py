"""Where the native tools are looked for, and what a person reads who has none."""

import pytest

from ptanalyze.capture.live import native
from ptanalyze.core.errors import UsageError

TOOLS = {"ptdump": "dumps/build", "libpt_qemu.so": "pintool/build", "pin_tool.so": "pintool/build/pin"}


@pytest.fixture
def nothing_built(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PTANALYZE_NATIVE", raising=False)
    monkeypatch.setattr(native, "PACKAGE", "native_tools_of_a_test")


@pytest.mark.parametrize("as_checkout", [True, False])
def test_one_directory_holds_all_tools_be_it_a_checkout_or_a_flat_one(
    nothing_built, monkeypatch, tmp_path, as_checkout
):
    for name, place in TOOLS.items():
        file = tmp_path / "here" / (place if as_checkout else "") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setenv("PTANALYZE_NATIVE", str(tmp_path / "here"))
    assert {native.native(name).name for name in TOOLS} == set(TOOLS)


def test_a_directory_that_is_named_comes_before_a_checkout_that_before_a_package_and_that_before_the_path(
    nothing_built, monkeypatch, tmp_path
):
    places = [
        tmp_path / "named",
        tmp_path / "nowhere/dumps/build",
        tmp_path / "site/native_tools_of_a_test",
        tmp_path,
    ]
    monkeypatch.setenv("PTANALYZE_NATIVE", str(places[0]))
    monkeypatch.syspath_prepend(tmp_path / "site")
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / "ptdump").touch(0o755)
    (places[2] / "__init__.py").touch()
    for place in places:
        assert native.native("ptdump") == place / "ptdump"
        (place / "ptdump").unlink()


@pytest.mark.parametrize("name", TOOLS)
def test_who_has_no_checkout_is_told_how_to_get_a_tool(nothing_built, name):
    with pytest.raises(
        UsageError, match=r"in a checkout of ptanalyze, then set PTANALYZE_NATIVE to that"
    ) as told:
        native.native(name)
    assert ("pip install 'ptanalyze[native]'" in str(told.value)) == (name != "pin_tool.so")


def test_a_directory_that_holds_no_tool_is_named(nothing_built, monkeypatch, tmp_path):
    monkeypatch.setenv("PTANALYZE_NATIVE", str(tmp_path))
    with pytest.raises(UsageError, match=f"not found in PTANALYZE_NATIVE={tmp_path} either"):
        native.native("ptdump")
