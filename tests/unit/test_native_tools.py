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


@pytest.mark.parametrize("name", TOOLS)
def test_who_installed_with_pip_is_told_that_a_checkout_is_needed(nothing_built, name):
    with pytest.raises(UsageError, match=r"pip installs the analyser alone.*set PTANALYZE_NATIVE to that"):
        native.native(name)


def test_a_directory_that_holds_no_tool_is_named(nothing_built, monkeypatch, tmp_path):
    monkeypatch.setenv("PTANALYZE_NATIVE", str(tmp_path))
    with pytest.raises(UsageError, match=f"not found in PTANALYZE_NATIVE={tmp_path} either"):
        native.native("ptdump")


@pytest.mark.parametrize(
    ("version", "options", "why"),
    [
        ("10.0.2", "-cpu model", "built without plugins"),
        ("6.2.0", "-plugin file", "too old"),
        ("x", "-plugin file", "no version of QEMU"),
    ],
)
def test_a_qemu_that_cannot_trace_says_why(tmp_path, version, options, why):
    qemu = tmp_path / "qemu-x86_64"
    script = f'case $1 in --version) echo qemu version {version};; *) echo "{options}";; esac'
    qemu.write_text(f"#!/bin/sh\n{script}\n")
    qemu.chmod(0o755)
    with pytest.raises(UsageError, match=why):
        native.qemu_plugin(qemu)
