"""The node of what lies on none that is known; without NumPy, which a survey of the host does not load."""

UNKNOWN_NODE = -1
