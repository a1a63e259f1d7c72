"""The designs that the Hydra paper compares, as policies; Linux is what the others are compared with."""

LINUX, MITOSIS, HYDRA = ("linux", {}), ("mitosis", {}), ("hydra", {})
UNFILTERED = ("hydra", {"tlbflush": "off"})
ALL_RANGES = ("hydra", {"tlbflush": "all"})

DESIGNS = {"linux": LINUX, "mitosis": MITOSIS, "hydra": HYDRA, "unfiltered": UNFILTERED, "all": ALL_RANGES}
