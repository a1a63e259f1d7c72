"""The QMP client against whatever may listen on a socket."""

import socket
import threading
from contextlib import contextmanager

import pytest

from ptanalyze.capture.live import qmp as client
from ptanalyze.capture.live.qmp import Qmp, registers, slots_of
from ptanalyze.core.errors import UsageError

GREETING = b'{"QMP": {}}\r\n{"return": {}}\r\n'


@contextmanager
def listening(tmp_path, said):
    """Path of a socket on which a thread says `said` to whoever connects, and hears them out."""
    path = tmp_path / "qmp"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve():
            there, _ = server.accept()
            with there:
                there.sendall(said)
                there.shutdown(socket.SHUT_WR)
                while there.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join(10)


@pytest.mark.parametrize(
    "said, why",
    [
        (b"", "not a QMP answer: b''"),
        (b"SSH-2.0-OpenSSH\r\n", "not a QMP answer"),
        (b"[" * 100_000, "not a QMP answer"),
        (b"[1, 2]\n", "not a QMP answer"),
        (b'{"hello": 1}\n', "this is no QMP socket"),
        (b'{"QMP": {}}\n{"error": {"desc": "no"}}\n', "qmp_capabilities: no"),
        (b'{"QMP": {}}\n{"error": 7}\n', "qmp_capabilities: 7"),
        (b'{"QMP": {}}\n\xff\xfe\n', "not a QMP answer"),
    ],
)
def test_what_is_no_qmp_is_told_in_one_line(tmp_path, said, why):
    with listening(tmp_path, said) as path, pytest.raises(UsageError, match=why):
        Qmp(path)


def test_no_socket_and_silence_are_told(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="cannot talk to QEMU: No such file"):
        Qmp(tmp_path / "none")
    monkeypatch.setattr(client, "TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "mute"))
        server.listen()
        with pytest.raises(UsageError, match="QEMU does not answer"):
            Qmp(tmp_path / "mute")


CPU = b'{"return": [{"cpu-index": 0, "thread-id": 9}]}\n'


@pytest.mark.parametrize(
    "said, why",
    [
        (b'{"return": {}}\n', "names no vCPUs"),
        (b'{"return": []}\n', "names no vCPUs"),
        (b'{"return": [3]}\n', "3 is no vCPU"),
        (b'{"return": [{"cpu-index": "x", "thread-id": 9}]}\n', "is no vCPU"),
        (CPU + b'{"return": "PC=0"}\n', "shows no CR0, CR3, CR4 and EFER"),
        (CPU + b'{"return": 5}\n', "shows no CR0"),
        (CPU, "not a QMP answer"),
    ],
)
def test_answers_without_registers_are_told(tmp_path, said, why):
    with listening(tmp_path, GREETING + said) as path, Qmp(path) as qmp, pytest.raises(UsageError, match=why):
        registers(qmp)


def test_events_between_answers_are_skipped(tmp_path):
    text = b'{"return": "CR0=80050033 CR2=0 CR3=0000000006000 CR4=00001020\\r\\nEFER=0000000000000d01"}\n'
    event = b'{"event": "RESUME", "timestamp": {}}\n'
    with listening(tmp_path, GREETING + event + CPU + event + text) as path, Qmp(path) as qmp:
        (found,) = registers(qmp)
    assert (found.tid, found.root, found.levels) == (9, 6, 5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'FlatView #0\\n AS \\"I/O\\"\\n  0000000000000000-0000000000000fff (prio 0, ram): x\\n',
        'FlatView #0\\n AS \\"memory\\"\\n  0000000000000000-0000000000000fff (prio 0, i/o): x\\n',
    ],
)
def test_a_monitor_that_shows_no_memory_is_told(tmp_path, text):
    said = GREETING + f'{{"return": "{text}"}}\n'.encode()
    with (
        listening(tmp_path, said) as path,
        Qmp(path) as qmp,
        pytest.raises(UsageError, match="no guest memory"),
    ):
        slots_of(qmp)
