"""The booted lab: `pytest tests/lab` is the small run, `pytest tests/lab --full` the whole matrix."""

import subprocess

import pytest

from . import images, runs


def pytest_addoption(parser):
    parser.addoption("--lab-keep", metavar="DIR", help="leave the machines' files and memory in DIR")
    parser.addoption("--lab-kernel", metavar="DEB", help="boot the kernel of this package, not Debian's own")


def pytest_configure(config):
    config.addinivalue_line("markers", "lab(full=False): boots emulated machines; full: only with --full")


def pytest_terminal_summary(terminalreporter):
    if runs.HISTORY:
        terminalreporter.section("boots of the lab")
        terminalreporter.write_line("\n".join(runs.HISTORY))


@pytest.fixture(scope="session")
def kernel(request):
    if missing := images.missing_packages():
        pytest.fail(f"the lab needs these packages: apt-get install {' '.join(missing)}", pytrace=False)
    return images.kernel(request.config.getoption("--lab-kernel", None))


@pytest.fixture(scope="session")
def ptdump():
    subprocess.run(["make", "-s", "-C", images.ROOT / "dumps"], check=True)
    return images.ROOT / "dumps/build/ptdump"


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Directory with the lab's own programs, static."""
    directory = tmp_path_factory.mktemp("programs")
    build = ["gcc", "-O2", "-Wall", "-Wextra", "-static", "-pthread"]
    for name in ("toucher", "placed", "vmm", "emptied"):
        subprocess.run([*build, images.LAB / f"programs/{name}.c", "-o", directory / name], check=True)
    bare = ["gcc", "-m32", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-Ttext=0x103000"]
    bare += ["-Wl,--section-start=.header=0x102000", "-Wl,--section-start=.tables=0x110000"]
    pages = ["-Wl,-z,max-page-size=4096", images.LAB / "programs/pages.S", "-o", directory / "pages"]
    subprocess.run([*bare, *pages], check=True)
    return directory


@pytest.fixture
def place(request):
    with runs.a_place(request.node.name, request.config.getoption("--lab-keep", None)) as directory:
        yield directory
