"""Virtual machines: joining the captures of host and guest."""
