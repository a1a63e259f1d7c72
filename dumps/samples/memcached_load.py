#!/usr/bin/env python3
"""Load for the bundled sample: fill a memcached with values, read them in random order, shut it down.

Usage: memcached_load.py SOCKET KEYS VALUE_BYTES GETS
Four connections, one a worker thread of memcached; keys and order are seeded, so a recording can be repeated.
"""

import random
import socket
import sys
import threading
import time

CONNECTIONS = 4


def connect(path):
    """The server needs a while to start under a tracer."""
    for _ in range(600):
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            return client
        except OSError:
            time.sleep(0.1)
    raise ConnectionError(f"{path}: nobody listens")


def read_line(file):
    line = file.readline()
    if not line:
        raise ConnectionError("memcached closed the connection")
    return line


def load(path, worker, keys, size, gets):
    client = connect(path)
    file = client.makefile("rb")
    for key in range(worker, keys, CONNECTIONS):
        client.sendall(b"set k%d 0 0 %d\r\n%s\r\n" % (key, size, bytes([65 + key % 26]) * size))
        read_line(file)
    order = random.Random(worker)
    for _ in range(gets):
        client.sendall(b"get k%d\r\n" % order.randrange(keys))
        while read_line(file) != b"END\r\n":
            pass
    client.close()


def main():
    path, keys, size, gets = sys.argv[1], *map(int, sys.argv[2:5])
    workers = [
        threading.Thread(target=load, args=(path, worker, keys, size, gets)) for worker in range(CONNECTIONS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    connect(path).sendall(b"shutdown\r\n")


if __name__ == "__main__":
    main()
