"""Which QEMU traces: that of PTANALYZE_NATIVE, of the PATH, or of the package; and which are refused."""

import pytest

from ptanalyze.capture.live import native, tracers
from ptanalyze.core.errors import UsageError


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    """Directories for a QEMU; the package has both builds of the plugin, and nothing is named or built."""
    package = tmp_path / "site/native_tools_of_a_test"
    (package / "qemu").mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("libpt_qemu.so", "libpt_qemu_api2.so"):
        (package / name).touch()
    (tmp_path / "path").mkdir()
    (tmp_path / "named").mkdir()
    monkeypatch.setattr(native, "CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setattr(native, "PACKAGE", package.name)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("PTANALYZE_NATIVE", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return {"named": tmp_path / "named", "path": tmp_path / "path", "package": package / "qemu"}


def put(directory, version="7.2.22", options="-plugin"):
    """A QEMU that says of itself what is told here."""
    path = directory / "qemu-x86_64"
    answers = f"--version) echo qemu-x86_64 version {version};; --help) echo {options};;"
    path.write_text(f"#!/bin/sh\ncase $1 in {answers} esac\n")
    path.chmod(0o755)
    return path


def test_the_one_that_is_named_comes_before_the_systems_and_that_before_the_packages(places, monkeypatch):
    monkeypatch.setenv("PTANALYZE_NATIVE", str(places["named"]))
    put(places["package"])
    assert tracers.qemu().path.parent == places["package"]
    put(places["path"])
    assert tracers.qemu().path.parent == places["path"]
    put(places["named"])
    assert tracers.qemu().path.parent == places["named"]


@pytest.mark.parametrize("system", [{"options": "-cpu"}, {"version": "6.2.0"}, {"version": "none"}])
def test_a_system_whose_qemu_cannot_trace_leaves_it_to_the_packages(places, system):
    put(places["path"], **system)
    own = put(places["package"])
    assert tracers.qemu().path == own


def test_one_that_was_named_and_cannot_trace_is_refused_not_replaced(places, monkeypatch):
    monkeypatch.setenv("PTANALYZE_NATIVE", str(places["named"]))
    put(places["path"])
    put(places["package"])
    put(places["named"], options="-cpu")
    with pytest.raises(UsageError, match=f"{places['named']}/qemu-x86_64: .*without plugins"):
        tracers.qemu()


def test_who_has_none_is_told_how_to_get_one():
    with pytest.raises(UsageError, match=r"qemu-x86_64: not found; `pip install 'ptanalyze\[native\]'`"):
        tracers.qemu()


@pytest.mark.parametrize(
    ("version", "options", "told"),
    [
        ("6.2.0", "-plugin", "QEMU 6.2 is too old"),
        ("10.0.13", "-cpu", r"built without plugins.*--enable-plugins"),
        ("none", "-plugin", "no version of QEMU"),
    ],
)
def test_the_only_one_is_refused_with_the_reason_if_it_cannot_trace(places, version, options, told):
    put(places["path"], version, options)
    with pytest.raises(UsageError, match=told):
        tracers.qemu()


def test_one_that_cannot_be_started_is_named(places, monkeypatch):
    monkeypatch.setenv("PTANALYZE_NATIVE", str(places["named"]))
    put(places["named"]).chmod(0o644)
    with pytest.raises(UsageError, match="qemu-x86_64: cannot be run: Permission denied"):
        tracers.qemu()


@pytest.mark.parametrize(("version", "plugin"), [("8.2.2", "libpt_qemu.so"), ("9.0.0", "libpt_qemu_api2.so")])
def test_each_gets_the_build_of_its_interface(places, version, plugin):
    put(places["path"], version)
    assert tracers.qemu().plugin.name == plugin and tracers.qemu().version == (
        int(version[0]),
        int(version[2]),
    )
