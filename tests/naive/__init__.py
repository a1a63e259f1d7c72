"""Slow, obvious models: each mirrors one kernel by name, walks Python dicts, and imports no Numba."""
