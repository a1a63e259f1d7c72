"""Virtual machines: joining what host and guest recorded, comparing a series, sharing."""
