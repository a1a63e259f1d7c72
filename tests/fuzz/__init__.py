"""Hostile input by the thousand: seeded changes of captures, texts and options, run by the command line."""
