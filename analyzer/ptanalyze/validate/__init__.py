"""What the papers measured beside what this package says of it: one file a paper, a function a figure."""
