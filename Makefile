# `make demo` and `make test` are all a new user needs; everything is installed into .venv.

VENV   := .venv
PYTHON ?= python3
PT     := $(VENV)/bin/ptanalyze
PYTEST := $(VENV)/bin/python -m pytest

.PHONY: demo notebooks test test-compiled test-uncompiled lint native docs man deps bench lab sample clean

demo: $(VENV)/.installed
	$(PT) whatif --policy hydra

test: deps $(VENV)/.installed-test native lint test-compiled test-uncompiled

test-compiled: $(VENV)/.installed-test
	$(PYTEST) -q

test-uncompiled: $(VENV)/.installed-test
	NUMBA_DISABLE_JIT=1 $(PYTEST) -q -n auto --dist loadfile tests/unit

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check analyzer tests notebooks
	$(VENV)/bin/ruff format --check analyzer tests notebooks
	$(VENV)/bin/mypy

native:
	$(MAKE) -C pintool
	$(MAKE) -C dumps

# the manual, build/docs/index.html
docs: $(VENV)/.installed-test
	$(VENV)/bin/python -m sphinx -q -W -n -b html -d build/doctrees analyzer/docs build/docs

# JupyterLab with the six notebooks
notebooks: $(VENV)/.installed-notebooks
	$(VENV)/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

# man pages, build/man/ptanalyze*.1: man -l build/man/ptanalyze.1, or copy them to share/man/man1
man: $(VENV)/.installed
	$(VENV)/bin/python analyzer/docs/_ext/man_pages.py build/man

bench: $(VENV)/.installed-test
	$(VENV)/bin/python -m analyzer.bench

lab: deps $(VENV)/.installed-test native
	$(PYTEST) -q tests/lab --lab=full

sample: $(VENV)/.installed native
	dumps/samples/record.sh
	$(VENV)/bin/python dumps/samples/record_vm.py

deps:
	.ci/deps

$(VENV)/bin/pip:
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || .ci/deps python3-venv
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

$(VENV)/.installed-notebooks: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[notebooks]'
	touch $@

clean:
	$(MAKE) -C pintool clean
	$(MAKE) -C dumps clean
	rm -rf $(VENV) build dist
