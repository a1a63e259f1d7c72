"""Names of a package that are imported when they are first asked for."""

import sys
from collections.abc import Callable


def attach(package: str, file: str) -> tuple[dict[str, tuple[str, str]], Callable[[str], object]]:
    """Offer the names that the stub beside a package's `__init__.py` lists.

    Parameters
    ----------
    package, file : str
        `__name__` and `__file__` of the package. A line of its stub is `from MODULE import NAME as PUBLIC`.

    Returns
    -------
    api : dict of str to (str, str)
        The module that defines each public name, or the package of that module, and the name there.
    getter : callable
        The package's `__getattr__` (PEP 562).
    """
    with open(f"{file}i", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    api = {public: (module, name) for _, module, _, name, _, public in lines}

    def getter(public: str) -> object:
        from importlib import import_module  # here: before `__main__` runs, no Ctrl-C is heeded

        if public not in api:
            raise AttributeError(f"module {package!r} has no attribute {public!r}")
        module, name = api[public]
        try:
            value = None if module == "." else getattr(import_module(module, package), name, None)
            if value is None:  # a module
                value = import_module(f"{module.rstrip('.')}.{name}", package)
        except ModuleNotFoundError as error:
            from .errors import uninstalled

            raise uninstalled(error) from None
        setattr(sys.modules[package], public, value)
        return value

    return api, getter
