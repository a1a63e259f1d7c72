"""The explorer of page tables: what it draws is what the capture holds, zoomed and walked."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import ptanalyze
from ptanalyze.core.errors import UsageError
from ptanalyze.show.style import node_colours
from ptanalyze_report.explore.widget import TableMap

if not os.environ.get("CI"):
    pytest.importorskip("anywidget", reason="the extra `notebooks` is not installed")

HOST = Path(__file__).with_name("host.html")


@pytest.fixture(scope="module")
def vm(tmp_path_factory):
    place = tmp_path_factory.mktemp("explore")
    return ptanalyze.synth(place / "vm", "16M", guest="visible", accesses=3000, init_trace=False)


@pytest.fixture
def explorer(vm):
    return ptanalyze.explore(vm)


def test_every_table_is_seen_at_full_width_with_its_node(vm):
    for tree in (vm.snapshot.guest, vm.snapshot.nested):
        whole = TableMap(tree)
        bands = whole.bands(0, whole.slots, whole.slots)
        for band in bands:
            mine = np.flatnonzero(tree.level[whole.own] == band["level"])
            seen = {(int(a), int(tree.node[whole.own[k]])) for k in mine for a in [whole.start[k]]}
            assert seen <= set(enumerate(band["node"]))
            widths = whole.end[mine] - whole.start[mine]
            assert sum(node != -2 for node in band["node"]) == widths.sum()


def test_one_table_shows_its_entries(explorer, vm):
    one = explorer.maps["gPT"]
    explorer.asked = {**explorer.asked, "low": 1.2, "high": 1.3}
    assert (explorer.shown["low"], explorer.shown["high"]) == (1.0, 2.0)
    cells = explorer.shown["cells"]
    table = one.leaf_at(1)
    assert cells["base"] == vm.snapshot.guest.base[table]
    present = (np.asarray(vm.snapshot.guest.entries[table]) & np.uint64(1)).astype(bool)
    assert [node != -2 for node in cells["node"]] == present.tolist()


def test_all_reads_of_a_walk_are_over_the_entry_that_ends_it(explorer, vm):
    tree, one = vm.snapshot.guest, explorer.maps["gPT"]
    table = int(np.flatnonzero(tree.level == 1)[-1])
    entry = int(np.flatnonzero(np.asarray(tree.entries[table]) & np.uint64(1))[-1])
    address = int(tree.base[table]) + 4096 * entry
    explorer.asked = {**explorer.asked, "address": f"{address:x}"}
    places = {step["place"] for step in explorer.shown["steps"] if step["where"].startswith("gPT")}
    assert len(places) == 1 and one.leaf_at(min(places)) == table
    explorer.asked = {**explorer.asked, "low": int(min(places)), "high": int(min(places)) + 1}
    assert explorer.shown["entry"] == entry and explorer.shown["cells"]["base"] == tree.base[table]
    assert explorer.shown["to"] - explorer.shown["from"] == (1 << 21) - 1
    explorer.asked = {**explorer.asked, "dimension": "ePT"}
    placed = [step for step in explorer.shown["steps"] if step["place"] is not None]
    assert len({step["place"] for step in placed}) > 1 and all(s["where"][0] == "e" for s in placed)


def test_what_cannot_be_walked_is_said(explorer):
    for text, why in (("zz", "not a hexadecimal address"), ("ffffffffffffffff", "outside what 4 levels map")):
        explorer.asked = {**explorer.asked, "address": text}
        assert why in explorer.shown["said"] and explorer.shown["steps"] == []


def test_without_the_extra_it_says_what_to_install(vm, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "ptanalyze_report.explore.widget", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'ptanalyze\[notebooks\]'"):
        ptanalyze.explore(vm)


def served(explorer, browser, tmp_path):
    """Answer what the reader asked in the browser, as a running kernel does."""
    for change in browser.execute_script("const sent = window.sent; window.sent = []; return sent"):
        explorer.asked = change["asked"]
    browser.execute_script("window.receive('shown', arguments[0])", explorer.shown)


def test_a_reader_zooms_and_walks_in_a_browser(explorer, browser, tmp_path):
    state = {"asked": explorer.asked, "shown": explorer.shown}
    page = HOST.read_text("utf-8")
    for name, value in (("STATE", state), ("SOURCE", explorer._esm), ("CSS", explorer._css)):
        page = page.replace(f"= {name}", "= " + json.dumps(value), 1)
    (tmp_path / "host.html").write_text(page)
    browser.get((tmp_path / "host.html").as_uri())
    wait_for(browser, "document.documentElement.dataset.ready")
    drawn = pixels(browser)
    node = explorer.maps["gPT"].tree.node[0]
    assert drawn[0] == node_colours([int(node)])[int(node)].lower()

    find = lambda selector: browser.find_element("css selector", selector)  # noqa: E731
    next(one for one in browser.find_elements("css selector", "button") if one.text == "One table").click()
    served(explorer, browser, tmp_path)
    assert "1 of " in find(".ptx-where").text and explorer.shown["cells"]
    field = find(".ptx-tools input")
    enter = "addEventListener('keydown', event => event.key === 'Enter' && event.preventDefault())"
    browser.execute_script(f"document.{enter}")  # as JupyterLab does: a field sends no change then
    base = explorer.shown["cells"]["base"]
    field.send_keys(f"{base:x}\n")
    served(explorer, browser, tmp_path)
    assert find(".ptx-walk").text.startswith("ePT L4") and "gPT L1[0] node" in find(".ptx-walk").text
    assert any(step["place"] is not None for step in explorer.shown["steps"])
    assert explorer.shown["entry"] == 0
    assert "node 0" in find(".ptx-legend").text
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []


def pixels(browser):
    """Colours at the middle of each band."""
    return browser.execute_script(
        """
        const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d");
        const ratio = window.devicePixelRatio || 1;
        const two = one => one.toString(16).padStart(2, "0");
        const hex = data => "#" + [...data].slice(0, 3).map(two).join("");
        return [0, 1, 2, 3].map(row => hex(pen.getImageData(60 * ratio, (row * 42 + 30) * ratio, 1, 1).data));
        """
    )


def wait_for(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10, 0.05).until(lambda _: browser.execute_script(f"return {condition}"))
