# make demo    set up and run the first experiment        make test       checks and tests, under 5 minutes
# make docs    write the generated reference pages        make test-full  the slow tests as well, under 35
# make site    build the documentation site               make package    build wheel and sdist, and try them
# make bench   measure speed and memory                   make lint       style and types only

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev
# Tests start hundreds of processes; without stored bytecode each of them compiles the package again.
unexport PYTHONDONTWRITEBYTECODE
# Real data beside the checkout is used where it is present.
export FEDGE_DATA ?= $(if $(wildcard ../shared/data/mnist),$(abspath ../shared/data))

.PHONY: setup demo test test-full lint bench docs site package clean


setup: $(DEV)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

# What the demo needs, and what developing needs: the second is much more.
$(READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[page]'
	touch $@

$(DEV): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(READY)

demo: $(READY)
	@rm -rf runs/demo
	$(BIN)/fedge run recipes/demo/*.toml --runs runs/demo --chart runs/demo/comparison.png
	$(BIN)/fedge report runs/demo -o runs/demo/report.html
	@echo "results page: $(BIN)/fedge view runs/demo --open"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -m 'not full' -n 2

test-full: setup
	$(BIN)/pytest -m full

bench: setup
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/python scripts/make_reference.py
	$(BIN)/python scripts/make_algorithm_pages.py

site: setup
	$(BIN)/python scripts/make_site.py

package: setup
	$(BIN)/python scripts/check_package.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info
