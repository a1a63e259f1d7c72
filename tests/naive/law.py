"""Walk cycles with tables elsewhere, as docs/adr/0010-the-run-time-law.md writes them."""


def walk_cycles(gpt, ept=0.0, share_gpt=1.0, share_ept=1.0, stretch_gpt=1.0, stretch_ept=1.0):
    """X of the law over e."""
    return gpt * (1 + share_gpt * (stretch_gpt - 1)) + ept * (1 + share_ept * (stretch_ept - 1))


def cycles_by_pages(small, huge, walks_small, walks_huge, walks):
    """C(p) by runs with small and huge pages, of which nothing else is known: the straight line."""
    return small + (small - huge) * (walks - walks_small) / (walks_small - walks_huge)


def cycles_by_hiding(outside, hidden, walk, walks, threads=1):
    """C of a run of `walks` walks of `walk` cycles each, of which a core hides `hidden` and each of `threads`
    that share a walker waits for the rest: the steep end of a trial (docs/explanation/page-size.md)."""
    return outside + threads * walks * max(walk - hidden, 0.0)
