"""Capture: everything that looks at a live process, or runs one."""
