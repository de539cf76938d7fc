# Set-up, demo and tests of Streamscope. `make help` lists the targets; every one of them sets up what it needs.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

# The CUDA extra: cuda12 or cuda13 after the NVIDIA driver of this machine; nvrtc, which compiles kernels, where there is no GPU.
# `make setup CUDA_EXTRA=` leaves it out.
ifndef CUDA_EXTRA
CUDA_EXTRA := $(shell sh scripts/cuda_extra.sh)
endif
CONSTRAINTS := $(if $(filter cuda12,$(CUDA_EXTRA)),constraints-cuda12.txt,constraints.txt)

comma := ,
INSTALL = sh scripts/install.sh $(VENV)/bin $(PY) --constraint $(CONSTRAINTS) --build-constraint $(CONSTRAINTS)
extras = --editable '.$(if $(strip $(1)),[$(subst $() ,$(comma),$(strip $(1)))])'

# What an installation was made from: when one of these changes, it is made again.
FRONTEND := $(shell find widgets/frontend -type d \( -name node_modules -o -name tests \) -prune -o -type f -print 2>/dev/null)
SOURCES := pyproject.toml $(CONSTRAINTS) $(wildcard hatch_build.py widgets/labextension/*) $(FRONTEND)
RUNTIME := $(VENV)/.runtime$(CUDA_EXTRA)
DEVELOPMENT := $(VENV)/.development$(CUDA_EXTRA)
LAB := $(VENV)/.lab$(CUDA_EXTRA)

.PHONY: help setup demo lab test quick check docs versions lock upgrade clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/make \1\t\2/' | expand -t 16

setup: $(RUNTIME) ## make .venv and install Streamscope into it, with CUDA support where there is a GPU, else with the compiler

demo: $(RUNTIME) ## compare the engines on a chain of small kernels; prints the table, writes streamscope-demo/report.html
	$(VENV)/bin/streamscope compare elementwise-chain --device auto --out streamscope-demo

# From the repository's root: links from the notebooks lead to the documentation, which lies beside them.
lab: $(LAB) ## open JupyterLab on the notebooks
	$(VENV)/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --ServerApp.root_dir='$(CURDIR)' --LabApp.default_url=/lab/tree/notebooks

# Tests and tools start Python some hundred times: what is compiled is kept, but beside the environment and not beside the sources.
test quick: export PYTHONDONTWRITEBYTECODE :=
test quick: export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

test: check docs versions ## everything that CI runs: style, types, layers, documentation, then all tests; installs the tools and a browser
	sh scripts/install_browser.sh
	$(PY) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

quick: check ## style, types, layers, the tests of what you changed and a core of the others; two minutes on 2 cores
	$(PY) -m pytest --quiet --numprocesses auto --maxprocesses 4 --dist loadfile -m 'not slow and not browser' \
		$$($(PY) scripts/quick_tests.py) $(PYTEST_ARGS)

# CI begins anew each time: what mypy finds is not kept there.
check: $(DEVELOPMENT) ## style, types, layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy $(if $(CI),--cache-dir /dev/null)
	$(VENV)/bin/lint-imports
	$(PY) hatch_build.py --types

docs: $(DEVELOPMENT) ## the documentation, into build/docs; a link that leads nowhere is an error
	$(VENV)/bin/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs

versions: $(DEVELOPMENT) ## the tests that depend most on Python's version, under the other versions that are on this machine
	sh scripts/test_versions.sh $(VENV)/bin $(VENV)/versions

lock: $(VENV)/.made ## make the constraints fit pyproject.toml, changing as few versions as possible
	sh scripts/lock.sh

upgrade: $(VENV)/.made ## make the constraints anew, from the newest versions
	sh scripts/lock.sh --upgrade

clean: ## remove .venv and everything that is built
	rm -rf $(VENV) build dist streamscope-demo widgets/frontend/node_modules widgets/streamscope_widgets/static \
		.mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.made:
	sh scripts/make_venv.sh $(PYTHON) $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --upgrade --constraint constraints.txt pip
	-@$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt uv # pip does without
	@touch $@

$(RUNTIME): $(VENV)/.made $(SOURCES)
	@echo "Installing Streamscope$(if $(CUDA_EXTRA), with $(CUDA_EXTRA)) into $(VENV); the first time takes a minute or two."
	$(INSTALL) $(call extras,$(CUDA_EXTRA))
	@touch $@

$(LAB): $(VENV)/.made $(SOURCES)
	@echo "Installing Streamscope with JupyterLab into $(VENV); the first time takes a minute or two."
	$(INSTALL) $(call extras,$(CUDA_EXTRA) lab)
	@touch $@ $(RUNTIME)

$(DEVELOPMENT): $(VENV)/.made $(SOURCES)
	@echo "Installing Streamscope and what its checks and tests need into $(VENV); the first time takes a few minutes."
	$(INSTALL) --group dev $(call extras,$(CUDA_EXTRA) lab perfetto)
	@touch $@ $(LAB) $(RUNTIME)
