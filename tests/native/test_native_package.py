"""The wheel of the native tools records with the QEMU that it brings, and says what is in it."""

import re
import subprocess

import pytest

from native.packages import ROOT, build_native_wheel, pip_install, ptanalyze

OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1"}


@pytest.fixture(scope="module")
def native_wheel(tmp_path_factory):
    return build_native_wheel(tmp_path_factory.mktemp("tools"))


@pytest.fixture(scope="module")
def tools(native_wheel):
    """A directory with the package, to be put on PYTHONPATH."""
    return pip_install(native_wheel)


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_where_the_path_has_no_qemu_it_records_with_its_own_and_dumps(installed, tools, tmp_path):
    own = tools / "ptanalyze_native/qemu"
    done = ptanalyze(tmp_path, "record -o x -- /bin/true", installed, tools, path=str(tmp_path))
    assert done.returncode == 0 and "x: recorded with its page tables" in done.stdout, done.stderr
    mapped = (tmp_path / "x/maps").read_text()
    assert f"{own}/qemu-x86_64\n" in mapped and f"{own}/libglib-2.0.so.0\n" in mapped
    assert "/usr/bin/qemu" not in mapped

    told = ptanalyze(tmp_path, "doctor", installed, tools, path=str(tmp_path)).stdout
    assert re.search(rf"ok  tracer +QEMU \d+\.\d+, {own}/qemu-x86_64, with libpt_qemu", told)


def test_a_qemu_of_the_system_that_takes_plugins_is_used_first(installed, tools, tmp_path):
    told = ptanalyze(tmp_path, "doctor", installed, tools).stdout
    assert re.search(r"ok  tracer +QEMU \d+\.\d+, /usr/bin/qemu-x86_64, with libpt_qemu", told)


def test_its_qemu_takes_nothing_from_the_system_but_what_every_system_has(tools):
    own = tools / "ptanalyze_native/qemu"
    found = dict(re.findall(r"(\S+) => (/\S+)", said("ldd", own / "qemu-x86_64")))
    assert {name for name, path in found.items() if path != f"{own}/{name}"} == OF_THE_SYSTEM
    assert {path.name for path in own.iterdir()} == {*found, "qemu-x86_64"} - OF_THE_SYSTEM


def test_no_file_needs_a_newer_glibc_than_its_name_says(native_wheel, tools):
    named = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", native_wheel.name).groups()))
    binaries = [
        path
        for path in tools.glob("ptanalyze_native/**/*")
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    ]
    assert len(binaries) > 20
    text = "".join(said("readelf", "--version-info", path) for path in binaries)
    assert named == max(
        (int(major), int(minor)) for major, minor in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", text)
    )


def test_each_file_of_others_comes_with_its_terms_and_the_source_it_was_built_from(tools):
    package = tools / "ptanalyze_native"
    texts = {path.name: path.read_text() for path in package.glob("licences/*")}
    rows = re.findall(r"^(\S.*\S) {2,}(\S+) +(\S+=\S+)$", texts["NOTICE.txt"], re.MULTILINE)
    assert {path.name for path in package.glob("qemu/*")} == {
        what[5:] for what, _, _ in rows if what.startswith("qemu/")
    }
    assert {"libbpf-dev", "libelf-dev", "zlib1g-dev"} < {debian for _, debian, _ in rows}
    for _, debian, source in rows:
        assert len(texts[f"{debian}.txt"]) > 1000
        assert source == said("dpkg-query", "-W", "-f", "${source:Package}=${source:Version}", debian)
    referred = {name for text in texts.values() for name in re.findall(r"common-licenses/([\w.-]*\w)", text)}
    newest = {"GPL": "GPL-3", "LGPL": "LGPL-3"}
    assert {"GPL-2", "LGPL-2.1"} < referred
    assert {f"{newest.get(name, name)}.txt" for name in referred} < texts.keys()


def test_two_builds_have_equal_bytes(native_wheel, tmp_path):
    again = build_native_wheel(tmp_path)
    assert again.name == native_wheel.name and again.read_bytes() == native_wheel.read_bytes()


def test_the_native_tools_say_nothing_of_the_directory_that_they_were_built_in(tools):
    built = [path for path in tools.glob("ptanalyze_native/**/*") if path.is_file()]
    assert len(built) > 20 and not any(bytes(ROOT) in path.read_bytes() for path in built)
