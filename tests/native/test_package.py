"""The packages work away from the checkout, and their native parts keep to their floors."""

import re
import subprocess
import tarfile
import zipfile
from graphlib import TopologicalSorter

import pytest

from native.packages import ROOT, build, build_native_wheel, pip_install, ptanalyze
from ptanalyze import __version__

# Floors of the native parts: calls and includes between their files run in no circle.

PARTS = ["dumps", "pintool"]
WITHOUT_OBJECTS = {"chase", "pin_tool"}  # programs of one file; what `make native` does not build


def sources(part):
    found = {path for suffix in ("*.c", "*.cpp") for path in (ROOT / part).glob(suffix)}
    return {path.stem: path for path in found if ".bpf" not in path.name}


def symbols(part):
    """{source: (symbols it defines, symbols it needs)}, of the objects that `make native` leaves."""
    found = {}
    for name in sources(part).keys() - WITHOUT_OBJECTS:
        built = ROOT / part / "build"
        objects = sorted(built.glob(f"{name}.o")) or sorted(built.glob(f"{name}_api*.o"))
        assert objects, f"{part}/build has no object of {name}: run `make native`"
        listed = subprocess.run(["nm", "-P", objects[0]], capture_output=True, text=True, check=True).stdout
        kinds = [line.split()[:2] for line in listed.splitlines()]
        found[name] = {n for n, kind in kinds if kind in "TDBR"}, {n for n, kind in kinds if kind == "U"}
    return found


def floors(part):
    """{source: number of its floor, from the top}, as the Makefile says below "# Floors"."""
    block = re.search(r"# Floors.*\n\w+ :?= ((?:.*\\\n)*.*)", (ROOT / part / "Makefile").read_text())[1]
    rows = [re.sub(r"\.c\b", "", row).split() for row in block.replace("\\", "").splitlines()]
    return {name: number for number, row in enumerate(rows) for name in row}


@pytest.mark.parametrize("part", PARTS)
def test_a_file_calls_only_files_of_floors_below_its_own(part):
    known, floor = symbols(part), floors(part)
    calls = {a: {b for b in known if known[b][0] & needs} for a, (_, needs) in known.items()}
    assert floor.keys() <= known.keys() and any(calls.values())
    TopologicalSorter(calls).prepare()
    assert not [(a, b) for a in floor for b in calls[a] if floor[b] <= floor[a]]


@pytest.mark.parametrize("part", PARTS)
def test_includes_run_in_no_circle(part):
    includes = {path.stem: set() for path in (ROOT / part).glob("*.h")}
    for path in [*sources(part).values(), *(ROOT / part).glob("*.h")]:
        quoted = set(re.findall(r'^#include "(\w+)\.h"', path.read_text(), re.MULTILINE))
        includes.setdefault(path.stem, set()).update(quoted - {path.stem})
    TopologicalSorter(includes).prepare()


def test_flags_given_to_make_join_our_own():
    command = ["make", "-n", "-B", "-C", ROOT / "dumps", "CC=cc", "CFLAGS=-O1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    compiled = [line.split() for line in done.stdout.splitlines() if line.startswith("cc ")]
    assert compiled and all({"-O1", "-std=gnu11", "-Ibuild"} <= set(words) for words in compiled)


PIN_WRITER = re.findall(r"^WRITER := (.*)", (ROOT / "pintool/pin.mk").read_text(), re.MULTILINE)[0].split()
PINCRT_HAS = {"string", "stddef.h", "stdint.h"}  # with the kernel's headers and pin.H; in a kit of any age
GCC_NEEDS = {"memcpy", "memmove", "memset", "memcmp"}  # of every C library, PinCRT's too


def headers_of(names):
    """{file: headers in <> and pin.H} of sources, and of headers that they include."""
    found, todo = {}, [ROOT / "pintool" / f"{name}.{end}" for name in names for end in ("cpp", "h")]
    while todo:
        path = todo.pop()
        if path.name in found or not path.exists():
            continue
        text = path.read_text()
        found[path.name] = set(re.findall(r"^#include <(.+)>", text, re.MULTILINE))
        todo += [path.with_name(name) for name in re.findall(r'^#include "(\w+\.h)"', text, re.MULTILINE)]
    return found


def test_the_pin_tool_includes_only_what_every_pincrt_has():
    found = headers_of(["pin_tool", *PIN_WRITER])
    assert {"pin_tool.cpp", "writer.cpp", "own_maps.cpp", "strip.h"} <= found.keys()
    strange = {
        (file, header)
        for file, headers in found.items()
        for header in headers
        if header not in PINCRT_HAS and not header.startswith(("linux/", "asm/"))
    }
    assert not strange
    words = r"std::(?!string\b)\w+|pthread_\w+|thread_local|__thread|errno|f?printf|malloc|free|throw|catch"
    assert not {(f, w) for f in found for w in re.findall(rf"\b(?:{words})\b", code_of(ROOT / "pintool" / f))}


def code_of(path):
    """Its text without comments, strings and names of headers."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"[^"\n]*"|#include[^\n]*', "", path.read_text(), flags=re.DOTALL)


def test_the_writer_needs_no_library_and_no_thread_local_memory():
    objects = [ROOT / f"pintool/build/{name}.o" for name in PIN_WRITER]
    known = symbols("pintool")
    defined = set().union(*(known[path.stem][0] for path in objects))
    needed = set().union(*(known[path.stem][1] for path in objects))
    assert needed - defined - GCC_NEEDS - {"_GLOBAL_OFFSET_TABLE_"} == set()
    for path in objects:
        sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
        assert ".text" in sections and not re.search(r"\.(tbss|tdata|init_array)", sections)


def test_kernel_symbols_are_asked_for_by_name():
    """For an extern of no type libbpf reads all of /proc/kallsyms, whenever a program is loaded."""
    programs = sorted((ROOT / "dumps").glob("*.bpf.c"))
    assert programs and not [path for path in programs if "extern const void" in path.read_text()]


# The wheel of the native tools records with the QEMU that it brings, and says what is in it.

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


@pytest.mark.full
def test_where_the_path_has_no_qemu_it_records_with_its_own_and_dumps(installed, tools, tmp_path):
    own = tools / "ptanalyze_native/qemu"
    done = ptanalyze(tmp_path, "record -o x -- /bin/true", installed, tools, path=str(tmp_path))
    assert done.returncode == 0 and "x: recorded with its page tables" in done.stdout, done.stderr
    mapped = (tmp_path / "x/maps").read_text()
    assert f"{own}/qemu-x86_64\n" in mapped and f"{own}/libglib-2.0.so.0\n" in mapped
    assert "/usr/bin/qemu" not in mapped

    told = ptanalyze(tmp_path, "doctor", installed, tools, path=str(tmp_path)).stdout
    assert re.search(rf"ok  tracer +QEMU \d+\.\d+,\s+{own}/qemu-x86_64,\s+with\s+libpt_qemu", told)


@pytest.mark.full
def test_a_qemu_of_the_system_that_takes_plugins_is_used_first(installed, tools, tmp_path):
    told = ptanalyze(tmp_path, "doctor", installed, tools).stdout
    assert re.search(r"ok  tracer +QEMU \d+\.\d+,\s+/usr/bin/qemu-x86_64,\s+with\s+libpt_qemu", told)


@pytest.mark.full
def test_its_qemu_takes_nothing_from_the_system_but_what_every_system_has(tools):
    own = tools / "ptanalyze_native/qemu"
    found = dict(re.findall(r"(\S+) => (/\S+)", said("ldd", own / "qemu-x86_64")))
    assert {name for name, path in found.items() if path != f"{own}/{name}"} == OF_THE_SYSTEM
    assert {path.name for path in own.iterdir()} == {*found, "qemu-x86_64"} - OF_THE_SYSTEM


@pytest.mark.full
def test_no_file_needs_a_newer_glibc_than_its_name_says(native_wheel, tools):
    named = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", native_wheel.name).groups()))
    files = [path for path in tools.glob("ptanalyze_native/**/*") if path.is_file()]
    binaries = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
    assert len(binaries) > 20
    text = "".join(said("readelf", "--version-info", path) for path in binaries)
    needed = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", text)
    assert named == max((int(major), int(minor)) for major, minor in needed)


@pytest.mark.full
def test_each_file_of_others_comes_with_its_terms_and_the_source_it_was_built_from(tools):
    package = tools / "ptanalyze_native"
    texts = {path.name: path.read_text() for path in package.glob("licences/*")}
    rows = re.findall(r"^(\S.*\S) {2,}(\S+) +(\S+=\S+)$", texts["NOTICE.txt"], re.MULTILINE)
    shipped = {path.name for path in package.glob("qemu/*")}
    assert shipped == {what[5:] for what, _, _ in rows if what.startswith("qemu/")}
    assert {"libbpf-dev", "libelf-dev", "zlib1g-dev"} < {debian for _, debian, _ in rows}
    for _, debian, source in rows:
        assert len(texts[f"{debian}.txt"]) > 1000
        assert source == said("dpkg-query", "-W", "-f", "${source:Package}=${source:Version}", debian)
    referred = {name for text in texts.values() for name in re.findall(r"common-licenses/([\w.-]*\w)", text)}
    newest = {"GPL": "GPL-3", "LGPL": "LGPL-3"}
    assert {"GPL-2", "LGPL-2.1"} < referred
    assert {f"{newest.get(name, name)}.txt" for name in referred} < texts.keys()


@pytest.mark.full
def test_two_builds_have_equal_bytes(native_wheel, tmp_path):
    again = build_native_wheel(tmp_path)
    assert again.name == native_wheel.name and again.read_bytes() == native_wheel.read_bytes()


@pytest.mark.full
def test_the_native_tools_say_nothing_of_the_directory_that_they_were_built_in(tools):
    built = [path for path in tools.glob("ptanalyze_native/**/*") if path.is_file()]
    assert len(built) > 20 and not any(bytes(ROOT) in path.read_bytes() for path in built)


# The package works away from the checkout, and anybody who builds it gets the same bytes.


def test_the_wheel_has_every_file_of_its_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {*archive.namelist()}
    asked = "analyzer/ptanalyze*", "models", "dumps/samples"
    listed = said("git", "-C", ROOT, "ls-files", *asked).splitlines()
    data = ("models/", "ptanalyze/data/models/"), ("dumps/samples/", "ptanalyze/data/samples/")
    places = [("analyzer/", ""), *data]
    wanted = {new + name.removeprefix(old) for name in listed for old, new in places if name.startswith(old)}
    assert len(wanted) > 200 and wanted <= packed


@pytest.mark.full
def test_the_wheel_answers_the_main_question_on_the_bundled_sample(installed, tmp_path):
    done = ptanalyze(tmp_path, "whatif --policy hydra", installed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SAMPLE embeddings")
    assert "hydra" in done.stdout and "first-touch" in done.stdout


@pytest.mark.full
def test_the_wheel_says_how_to_get_the_native_tools_it_lacks(installed, tmp_path):
    done = ptanalyze(tmp_path, "record -o x -- /bin/true", installed)
    assert done.returncode == 2
    assert "--no-index --find-links dist ptanalyze-native" in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.glob("*x*")) == []


@pytest.mark.full
def test_the_wheel_has_the_version(installed, tmp_path):
    assert ptanalyze(tmp_path, "--version", installed).stdout == f"ptanalyze, version {__version__}\n"


@pytest.mark.full
def test_the_source_at_another_place_and_time_makes_the_same_wheel(wheel, tmp_path):
    build(ROOT, tmp_path, "-t", "sdist")
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    build(tmp_path / source.name.removesuffix(".tar.gz"), tmp_path, "-t", "wheel")
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
