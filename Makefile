# `make demo` and `make test` are all a new user needs; everything is installed into .venv.

VENV   := .venv
PYTHON ?= python3
PT     := $(VENV)/bin/ptanalyze
PYTEST := $(VENV)/bin/python -m pytest -q
FILES  := --dist loadscope --no-loadscope-reorder
# one process more than CPUs: the one that has the lab and the native tests mostly waits
SPREAD := -n $(shell expr $$(nproc) + 1) $(FILES)
# only these files: each process imports all files that it is given
TWIN   := ^(pytestmark = |@)pytest.mark.twin
TWINS  := $(shell grep -slE '$(TWIN)' tests/unit/*.py)

# kernels as plain Python: what proves what they compute, nothing else
PLAIN  = NUMBA_DISABLE_JIT=1 $(PYTEST) -n $(shell nproc) $(FILES) -m "twin and not compiled" $(TWINS)
# beside all other tests, some of which wait, at the lowest priority; shown when both have ended
both   = mkdir -p build; nice -n 19 env $(PLAIN) > build/plain.log 2>&1 & plain=$$!; \
	$(PYTEST) $(SPREAD) $(1); compiled=$$?; wait $$plain; plain=$$?; cat build/plain.log; exit $$((compiled | plain))

# byte code is written of what is imported, here and by make demo: most of what is installed never is; an environment that
# forbids Python to write it later then finds it
BY_PIP := $(VENV)/bin/pip install --disable-pip-version-check --no-compile
# by uv where there is one, which takes a quarter of pip's time; to fetch it first takes as long as to do without
UV     := $(shell command -v uv)
INSTALL = $(if $(UV),$(UV) pip install --quiet --python $(VENV)/bin/python $(1) ||) $(BY_PIP) $(1)
# an environment that forbids it would have every process compile the package and the tests again
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo report notebooks rendered test test-all check check-near check-golden golden warm test-compiled test-uncompiled lint native wheels docs picture examples licences man deps bench fuzz lab sample clean

demo: $(VENV)/.installed
	$(PT) whatif --policy hydra
	@echo; echo "So that your shell finds ptanalyze, once: . $(VENV)/bin/activate"

# what `report` and `--plot` need
report: $(VENV)/.installed
	$(call INSTALL,-e '.[report]')

# lint, compiler and kernels beside each other: each alone keeps one CPU busy
test: deps $(VENV)/.installed-test
	$(MAKE) --no-print-directory -j 3 --output-sync=target lint native warm
	$(call both,)

# before an issue is called resolved: also the whole lab, storms, all notebooks and pages of the manual, a long fuzz
test-all: deps $(VENV)/.installed-test
	$(MAKE) --no-print-directory -j 3 --output-sync=target lint native warm
	$(call both,--full)
	$(MAKE) --no-print-directory fuzz SECONDS=600

test-compiled: $(VENV)/.installed-test warm
	$(PYTEST) $(SPREAD)

test-uncompiled: $(VENV)/.installed-test
	$(PLAIN)

# for the minute between two edits, its parts beside each other: the test files nearest to what changed since
# SINCE, with 5 examples of each property, kernels as plain Python; the numbers of every answer
SINCE ?= HEAD
QUICK := --hypothesis-profile quick
# exit code of pytest where all of these files are twins
NO_TESTS := 5
check: $(VENV)/.installed-test
	$(MAKE) --no-print-directory -j 3 --output-sync=target lint check-near check-golden

check-near: $(VENV)/.installed-test
	near="$$($(VENV)/bin/python tests/changed.py $(SINCE))" || exit; [ "$$near" ] || exit 0; \
	$(PYTEST) $(QUICK) -m "not twin or compiled" $$near || [ $$? = $(NO_TESTS) ] || exit; \
	twins="$$(grep -lE '$(TWIN)' $$near)" || exit 0; \
	NUMBA_DISABLE_JIT=1 $(PYTEST) $(QUICK) -m "twin and not compiled" $$twins

check-golden: $(VENV)/.installed-test
	$(PYTEST) tests/golden

# the numbers of every answer beside those stored; WRITE=1 stores them, KEEP=DIR keeps each answer's values as text
golden: $(VENV)/.installed-test
	GOLDEN=$(if $(WRITE),write) KEEP=$(KEEP) $(PYTEST) tests/golden/test_frozen.py

# every policy's loop compiled once, before the processes of the suite would each do so
warm: $(VENV)/.installed-test
	$(VENV)/bin/python tests/warm.py

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check analyzer tests notebooks
	$(VENV)/bin/ruff format --check analyzer tests notebooks
	$(VENV)/bin/mypy

TOOLS := clang bpftool gcc g++
NEEDED := gcc g++ clang llvm bpftool libbpf-dev libelf-dev zlib1g-dev qemu-user

# what is missing is named, or installed when root, before a compiler complains
native: $(VENV)/.installed
	@PATH="$$PATH:/usr/sbin:/sbin"; for tool in $(TOOLS); do \
		command -v $$tool >/dev/null || { .ci/deps $(NEEDED); break; }; done
	$(MAKE) -C pintool
	$(MAKE) -C dumps
	@echo; echo "Built: pintool/build (tracer), dumps/build (page-table tools)."
	@echo "Next: $(PT) doctor; $$([ "$$(id -u)" = 0 ] || echo "sudo ")$(PT) record -- ./app"

# dist/: wheel and source of the analyser, and a wheel of the native tools and QEMU for systems with this one's glibc or newer
wheels: native
	@[ -x /usr/bin/qemu-x86_64 ] && command -v patchelf >/dev/null || .ci/deps qemu-user patchelf
	$(call INSTALL,'hatchling>=1.24')
	rm -rf dist
	$(VENV)/bin/hatchling build -d dist
	cd dumps/wheel && ../../$(VENV)/bin/hatchling build -t wheel -d ../../dist

# the manual, build/docs/index.html
docs: $(VENV)/.installed-test
	$(VENV)/bin/python -m sphinx -q -W -n -b html -d build/doctrees analyzer/docs build/docs
	$(VENV)/bin/python analyzer/docs/_ext/man_pages.py build/man
	@echo "Made: build/docs/index.html; man -l build/man/ptanalyze.1"

# README's picture, from the browser that the suite uses
picture: $(VENV)/.installed-test
	$(VENV)/bin/python analyzer/docs/_ext/picture.py analyzer/docs/_static

# the manual's page of published figures beside ours, analyzer/docs/worked-examples.md
examples: $(VENV)/.installed-test
	$(VENV)/bin/python analyzer/docs/_ext/worked_examples.py

# the manual's page of licences, analyzer/docs/reference/licences.md
licences: $(VENV)/.installed-test $(VENV)/.installed-bench $(VENV)/.installed-notebooks
	$(VENV)/bin/python analyzer/docs/_ext/licences.py > analyzer/docs/reference/licences.md

# JupyterLab with the notebooks
notebooks: $(VENV)/.installed-notebooks
	$(VENV)/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

# copies of the notebooks with their results, notebooks/rendered, for readers who do not run them
rendered: $(VENV)/.installed-test
	$(VENV)/bin/python analyzer/docs/_ext/notebook_pages.py render

# man pages, build/man/ptanalyze*.1: man -l build/man/ptanalyze.1; the wheel brings ptanalyze.1
man: $(VENV)/.installed
	$(VENV)/bin/python analyzer/docs/_ext/man_pages.py build/man
	cp build/man/ptanalyze.1 analyzer/docs/man/

# KEEP=FILE keeps the values, BEFORE=FILE shows kept ones beside those of now: on one machine, the table of a change
bench: $(VENV)/.installed-test $(VENV)/.installed-bench
	$(VENV)/bin/python -m analyzer.bench $(if $(KEEP),--keep $(KEEP)) $(if $(BEFORE),--before $(BEFORE))

# hostile captures, texts and options for SECONDS, from seed FIRST on; ends with 1 if anything is wrong
SECONDS ?= 60
FIRST ?= 0
fuzz: warm
	cd tests && ../$(VENV)/bin/python -m fuzz.campaign $(SECONDS) $(FIRST)

lab: deps $(VENV)/.installed-test native
	$(PYTEST) tests/lab --full

sample: $(VENV)/.installed native
	dumps/samples/record_embeddings.sh
	dumps/samples/record_lookup.sh
	dumps/samples/record.sh
	$(VENV)/bin/python dumps/samples/record_vm.py

deps:
	.ci/deps

$(VENV)/bin/pip:
	@echo "Making $(VENV), about $(if $(UV),1,4) s"
	@$(if $(UV),$(UV) venv --quiet --seed --python $(PYTHON) $(VENV) ||) { \
		$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || .ci/deps python3-venv; $(PYTHON) -m venv $(VENV); }
	@python=$$(readlink -f $(VENV)/bin/python); [ $$(id -u) != 0 ] || \
		setpriv --reuid=65534 --regid=65534 --clear-groups test -x $$python || \
		echo "Other users cannot run this $(VENV), as its Python is $$python; for them: make clean; make PYTHON=/usr/bin/python3"

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml
	@echo "Installing ptanalyze and what it needs, about $(if $(UV),5,15) s"
	@$(call INSTALL,--editable .)
	@echo "Compiling its byte code, about 1 s"
	@$(VENV)/bin/python -c "import compileall, pandas; compileall.compile_dir('analyzer', quiet=1)"
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(call INSTALL,--editable '.[test]')
	$(VENV)/bin/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true  # the suite imports from many processes
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(call INSTALL,--editable '.[bench]')
	touch $@

$(VENV)/.installed-notebooks: $(VENV)/.installed
	$(call INSTALL,--editable '.[notebooks]')
	touch $@

clean:
	$(MAKE) -C pintool clean
	$(MAKE) -C dumps clean
	rm -rf $(VENV) build dist
