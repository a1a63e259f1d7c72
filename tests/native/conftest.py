"""Targets of the dumper and of the tracer."""

import pytest

from native import packages, tracing
from native.dumping import SPARSE_GIB, build, build_vmm, make, running


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    return build(tmp_path_factory)


@pytest.fixture(scope="module")
def target(programs):
    """PID of a process of 2,048 leaf tables."""
    with running(programs / "dump_target", 4) as (process, _):
        yield process.pid


@pytest.fixture(scope="module")
def big(programs):
    """PID of one that is read long enough to be interrupted."""
    with running(programs / "dump_target", SPARSE_GIB) as (process, _):
        yield process.pid


@pytest.fixture(scope="session")
def vmm(tmp_path_factory):
    return build_vmm(tmp_path_factory)


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    tracing.build_plugin()
    make("dumps")
    return tracing.build(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return packages.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel):
    """A directory with the package, to be put on PYTHONPATH."""
    return packages.install(wheel)
