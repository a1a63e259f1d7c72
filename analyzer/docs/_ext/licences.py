"""The manual's page of licences, from what is installed: python licences.py > ../reference/licences.md

All extras must be installed: make licences.
"""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
PAGE = """# Licences

`ptanalyze` is under the MIT licence, and its package holds nothing of the following; a report holds
DataTables (MIT), from itables. The package `ptanalyze-native` holds parts of libbpf (LGPL-2.1 or
BSD-2-Clause), libelf (LGPL-3.0 or GPL-2.0, or later) and zlib (Zlib), and beside them, as Debian 12 built
them, QEMU's user mode (GPL-2.0) and its libraries: GLib, GnuTLS, libtasn1, liburing and libnuma (LGPL-2.1),
GMP, Nettle, libidn2 and libunistring (LGPL-3.0 or GPL-2.0, or later), Capstone, PCRE2 and p11-kit
(BSD-3-Clause), libffi (MIT). Its directory `licences` has all terms and lists the sources;
`dumps/wheel/README.md` has the obligations of redistributors. Intel Pin (Intel's own licence) is run,
and comes from elsewhere.

## What pip installs with ptanalyze

{needed}

## Extras

What these need in turn is not listed.

{extras}

Made from what the packages say of themselves, by `make licences`.
"""


def page():
    """Markdown of the page."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    needed = set()
    for text in project["dependencies"]:
        collect(text, needed)
    extras = {}
    for extra, texts in project["optional-dependencies"].items():
        for name in map(normal, texts):
            if not name.startswith("ptanalyze"):
                extras.setdefault(name, []).append(f"`{extra}`")
    return PAGE.format(
        needed=table(("package", "licence"), ((name, licence(name)) for name in sorted(needed))),
        extras=table(
            ("package", "licence", "extra"),
            ((name, licence(name), ", ".join(of)) for name, of in sorted(extras.items())),
        ),
    )


def normal(requirement):
    return re.sub(r"[-_.]+", "-", Requirement(requirement).name).lower()


def collect(requirement, found):
    """Add a package and all that it needs."""
    name = normal(requirement)
    if name in found:
        return
    found.add(name)
    for text in distribution(name).requires or ():
        marker = Requirement(text).marker
        if marker is None or marker.evaluate({"extra": ""}):
            collect(text, found)


def licence(name):
    """The SPDX expression, else what the classifiers or the field say."""
    data = distribution(name).metadata
    classified = [
        one.rpartition(" :: ")[2]
        for one in data.get_all("Classifier", ())
        if one.startswith("License ::") and not one.endswith("OSI Approved")
    ]
    written = (data["License"] or "").strip().partition("\n")[0]
    said = data["License-Expression"] or "; ".join(classified) or written
    if not said:
        raise SystemExit(f"{name}: its metadata name no licence")
    return said


def table(header, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    print(page(), end="")
