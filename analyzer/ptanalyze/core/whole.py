"""Whole numbers as people type them."""

DIGITS = 18  # fit 64 bits; Python refuses to read some thousands


def is_whole(text: str) -> bool:
    """Whether int(text) is a number of at most DIGITS digits, without a sign."""
    return text.isdecimal() and len(text) <= DIGITS
