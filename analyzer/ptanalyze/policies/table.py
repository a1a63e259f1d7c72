"""Where the placement policies are: a table, so that a name is known without importing what it stands for."""

from importlib.metadata import EntryPoints, entry_points

POLICIES = {  # name -> its file, and the name of its Policy there
    "linux": "baselines.LINUX",
    "first-touch": "baselines.FIRST_TOUCH",
    "interleave": "baselines.INTERLEAVE",
    "bind": "baselines.BIND",
    "ideal": "baselines.IDEAL",
    "mitosis": "mitosis.POLICY",
    "hydra": "hydra.POLICY",
    "vmitosis-replicate": "vmitosis_replicate.POLICY",
    "vmitosis-migrate": "vmitosis_migrate.POLICY",
    "ept-reset": "baselines.EPT_RESET",
    # policies that reshape the scenario, in their order
    "thp": "thp.POLICY",
    "ptemagnet": "ptemagnet.POLICY",
}


BOUND = "ideal"  # bounds locality from above, no policy to run


def names() -> list[str]:
    """Names of all policies, outside ones as their entry points call them; none is imported."""
    return [*dict.fromkeys([*POLICIES, *outside_points().names])]


def outside_points() -> EntryPoints:
    """Entry points of policies in other packages."""
    return entry_points(group="ptanalyze.policies")
