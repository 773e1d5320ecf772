# Every target makes the environment it needs: on a fresh clone, `make test` alone is enough.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup data pretrain bases cifar mnist evidence report bench test lint format lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the locked versions; does nothing when nothing changed

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null || { \
	  echo "make: PYTHON=$(PYTHON) is not a Python 3.11 or newer; name one, as in: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

data: $(READY)  ## prepare the image sets in ~/.cache/gconv_jax (or GCONV_DATA_DIR), verified
	$(BIN)/python -m gconv_jax.data

# BASIS=full KERNEL=5 ... become --basis full --kernel 5 ...
option = $(if $($(1)),--$(2) $($(1)))

pretrain: $(READY)  ## learn a basis: BASIS= SOLVER= ORIENTATIONS= KERNEL= STEPS= SEED=
	$(BIN)/python -m experiments.pretrain $(call option,BASIS,basis) $(call option,SOLVER,solver) \
	  $(call option,ORIENTATIONS,orientations) $(call option,KERNEL,kernel) \
	  $(call option,STEPS,steps) $(call option,SEED,seed)

bases: $(READY)  ## make the bases that ship with the package, anew
	$(BIN)/python -m experiments.ship

training = $(call option,BASIS,basis) $(call option,AUGMENT,augment) \
  $(call option,PRESET,preset) $(call option,SEED,seed)

cifar: $(READY)  ## train and judge on CIFAR-10: BASIS= AUGMENT= PRESET= SEED=
	$(BIN)/python -m experiments.classify --dataset cifar10 $(training)

mnist: $(READY)  ## the same on MNIST
	$(BIN)/python -m experiments.classify --dataset mnist $(training)

evidence: $(READY)  ## run the paper's experiments that have no result yet: PRESET=
	$(BIN)/python -m experiments.evidence $(call option,PRESET,preset)

report: $(READY)  ## tables, figures and report.html from the results: PRESET=
	$(BIN)/python -m experiments.report $(call option,PRESET,preset)

PEER := $(VENV)/peer

$(PEER)/.ready: experiments/bench/peer.lock $(READY)
	$(PYTHON) -m venv --clear $(PEER)
	$(PEER)/bin/python -m pip install --quiet --disable-pip-version-check $$(grep ^torch= $<)
	$(PEER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@

bench: $(PEER)/.ready  ## time it beside escnn and lax.conv, on a machine that does nothing else
	$(BIN)/python -m experiments.bench --peer $(PEER)/bin/python

test: $(READY)  ## run the test suite, with coverage of the package
	$(BIN)/python -m pytest --cov --numprocesses auto --dist loadfile

lint: $(READY)  ## check style (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## put the code into house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:  ## resolve pyproject.toml anew and write requirements.lock
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip freeze --exclude-editable > requirements.lock

clean:  ## remove .venv and everything the tools leave behind
	rm -rf $(VENV) dist build .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
