"""Twin of replicas some of whose pages are on the next replica's node (vMitosis, sections 3.3.4, 4.2.2)."""

from .policies import Fixed


class Misplaced(Fixed):
    """chosen: flat ids of the guest tables whose replicas are misplaced; groups: [[node, ...]]."""

    def __init__(self, memory, space, nodes, chosen, groups):
        firsts = [group[0] for group in groups]
        home = {node: group[0] for group in groups for node in group}
        super().__init__(memory, space, nodes, replicas=firsts, serve=home, host_replicas=True)
        after = dict(zip(firsts, firsts[1:] + firsts[:1], strict=True))
        self.away = {node: after[home[node]] for node in home}
        self.misplaced = {
            (level, int(space.tables.base[t]) >> (12 + 9 * level))
            for t in chosen
            for level in [int(space.tables.level[t])]
        }

    def where(self, table, node):
        return self.away[node] if table in self.misplaced else self.serve[node]
