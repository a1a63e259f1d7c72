"""Virtual machines: joining what host and guest recorded, guest tables read from outside, series, sharing."""
