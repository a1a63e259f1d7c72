"""Pages that several files look at; each is made once."""

import os
import shutil
from pathlib import Path

import pytest

import ptanalyze
from ptanalyze_report.study import studies
from report_page import ReportPage

BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
SMALL = {"accesses": 1500, "init_trace": False}


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def native(place):
    """A capture with system calls, and with a name that is markup."""
    return ptanalyze.synth(place / "a <script>alert(1)<&script>", "16M", mprotect_every=500, **SMALL)


@pytest.fixture(scope="session")
def vm(place):
    """A capture of a VM, with a long name."""
    name = "vm" + "-of-a-long-name" * 6
    return ptanalyze.synth(place / name, "16M", guest="visible", fragmentation=0.3, **SMALL)


@pytest.fixture(scope="session")
def twin(native, place):
    """The first capture again, elsewhere."""
    return ptanalyze.load(shutil.copytree(native.directory, place / "elsewhere" / native.directory.name))


@pytest.fixture(scope="session")
def untraced(place):
    return ptanalyze.synth(place / "untraced", 16 << 20, trace=False)


@pytest.fixture(scope="session")
def native_study(native):
    (study,) = studies([native], ptanalyze.Setup.of())
    return study


@pytest.fixture(scope="session")
def native_file(native, place):
    """(file that was another before, what `report` returned)."""
    path = place / "written" / "page.html"
    path.parent.mkdir()
    path.write_text("old")
    return path, ptanalyze.report(native, path)


@pytest.fixture(scope="session")
def all_file(native, vm, twin, place):
    """A file: the report of three captures."""
    ptanalyze.report([native, vm, twin], place / "all.html")
    return place / "all.html"


@pytest.fixture(scope="session")
def native_page(native_file):
    return ReportPage(native_file[1])


@pytest.fixture(scope="session")
def untraced_page(untraced):
    return ReportPage(ptanalyze.report(untraced))


@pytest.fixture(scope="session")
def all_page(all_file):
    return ReportPage(all_file.read_text("utf-8"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    missing = [path for path in (BROWSER, DRIVER) if not Path(path).exists()]
    if missing:
        why = f"no {' and no '.join(missing)}: apt install chromium chromium-driver"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("headless=new", "disable-dev-shm-usage", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, Service(DRIVER))
    driver.execute_cdp_cmd("Network.enable", {})
    yield driver
    driver.quit()
