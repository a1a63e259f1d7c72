"""Floors of the native parts: calls and includes between their files run in no circle."""

import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["dumps", "pintool"]
WITHOUT_OBJECTS = {"chase", "pingpong", "pin_tool"}  # programs of one file; what `make native` does not build

pytestmark = pytest.mark.native


def sources(part):
    found = {path for suffix in ("*.c", "*.cpp") for path in (ROOT / part).glob(suffix)}
    return {path.stem: path for path in found if ".bpf" not in path.name}


def symbols(part):
    """{source: (symbols it defines, symbols it needs)}, of the objects that `make native` leaves."""
    found = {}
    for name in sources(part).keys() - WITHOUT_OBJECTS:
        objects = sorted((ROOT / part / "build").glob(f"{name}.o")) or sorted(
            (ROOT / part / "build").glob(f"{name}_api*.o")
        )
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
    used = {(f, w) for f in found for w in re.findall(rf"\b(?:{words})\b", code_of(ROOT / "pintool" / f))}
    assert not used


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
