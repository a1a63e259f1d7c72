"""Walk cycles with tables elsewhere, as docs/adr/0010-the-run-time-law.md writes them."""


def walk_cycles(gpt, ept=0.0, share_gpt=1.0, share_ept=1.0, stretch_gpt=1.0, stretch_ept=1.0):
    """X of the law over e."""
    return gpt * (1 + share_gpt * (stretch_gpt - 1)) + ept * (1 + share_ept * (stretch_ept - 1))
