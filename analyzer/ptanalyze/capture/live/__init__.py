"""Capture from live processes: dumps, traces and measurements."""
