"""Numbers with their nouns, for people."""


def plural(number: int, what: str) -> str:
    """ "1 node", "1,024 nodes"."""
    return f"{number:,} {what}{'s' * (number != 1)}"
