"""Targets of the dumper and of the tracer."""

import subprocess

import pytest

from native import tracing
from native.dumping import SPARSE_GIB, build, running


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return build(tmp_path_factory)


@pytest.fixture(scope="module")
def big(programs):
    with running(programs / "dump_target", SPARSE_GIB) as (process, _):
        yield process.pid


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    tracing.build_plugin()
    subprocess.run(["make", "-s", "-C", tracing.ROOT / "dumps"], check=True)
    return tracing.build(tmp_path_factory.mktemp("programs"))
