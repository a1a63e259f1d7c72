"""Twin of the what-if without a trace: one mapped page, one reader, one read at a time."""

from collections import Counter

from naive.classify import leaves, vma_of
from naive.walker import Dimension


def count(snapshot, nodes, guest_server, host_server):
    """(reads {(bit, reader, server): n}, classes {(reader, LL..RR): n}, pages the host does not map).

    guest_server, host_server  (table of that tree, reader) -> node
    """
    reads, classes, left_out = Counter(), Counter(), 0
    host = None if snapshot.native else Dimension(snapshot.host, 0)
    for table, level, address, frame in leaves(snapshot.guest):
        vma = vma_of(snapshot, address)
        if vma < len(snapshot.vmas) and snapshot.vmas["emulator"][vma]:
            continue
        nested = host_leaf(host, frame) if host else None
        if host and nested is None:
            left_out += 1
            continue
        for reader in range(nodes):
            server = guest_server(table, reader)
            reads[8 * level, reader, server] += 1
            kind = 2 * (server != reader)
            if nested is not None:
                host_table, host_level = nested
                server = host_server(host_table, reader)
                reads[host_level, reader, server] += 1
                kind += server != reader
            classes[reader, kind] += 1
    return reads, classes, left_out


def host_leaf(host, frame):
    level, found = host.leaf(frame << 12)
    return None if found is None else (host.table(level, frame << 12), level)
