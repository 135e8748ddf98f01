# Needs Python 3.11 or newer, make and a package index; everything else goes into .venv.
# Another Python: make PYTHON=/path/to/python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
PYTEST_ARGS ?=
PYTHONS ?= $(PYTHON)
DEMO_OUT := runs/demo-$(shell date +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo demo-atari test test-slow test-torch test-engines lint format hooks benchmark gallery docs docs-links dist try-wheel test-trackers clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.ready-all ## compare three operators on a MinAtar game, five seeds each, to a finished page; about five minutes
	$(BIN)/softbellman compare minatar/breakout --operators max "softmax(30)" "mellowmax(30)" --seeds 5 --preset demo-minatar --out $(DEMO_OUT)
	@echo "Runs so short show the first steps of learning: see the README for longer ones."

demo-atari: $(VENV)/.ready-all ## train on a real Atari game for a few minutes; draw its curve, film a game
	@echo "This shows that everything works. So few steps cannot teach the game: see the README for real runs."
	$(BIN)/softbellman train atari/breakout --operator "softmax(5)" --preset demo-atari --seed 0 --out $(DEMO_OUT)
	$(BIN)/softbellman watch $(DEMO_OUT)

test: $(VENV)/.ready-dev ## the fast tests, without PyTorch, Ray and trackers
	$(BIN)/python -m pytest -m "not slow and not torch and not engines and not trackers" --numprocesses auto --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.ready-dev ## the tests that train for minutes
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

test-torch: $(VENV)/.ready-torch ## the operators on PyTorch tensors (installs PyTorch into .venv)
	$(BIN)/python -m pytest -m torch $(PYTEST_ARGS)

test-engines: ## the engines on Ray and Slurm, with an environment of their own (installs Ray into .venv-engines)
	@$(MAKE) VENV=.venv-engines .venv-engines/.ready-engines
	.venv-engines/bin/python -m pytest -m engines $(PYTEST_ARGS)

test-trackers: $(VENV)/.ready-trackers ## rows in Weights & Biases, MLflow and Trackio, offline (installs them into .venv)
	$(BIN)/python -m pytest -m trackers $(PYTEST_ARGS)

lint: $(VENV)/.ready-dev ## style, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.ready-dev ## put the source into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: $(VENV)/.ready-dev ## run `make lint`'s checks before each commit
	$(BIN)/pre-commit install

benchmark: $(VENV)/.ready-all ## agent steps per second on Atari beside Stable-Baselines3 (about 15 minutes)
	$(BIN)/python benchmarks/dqn_speed.py

gallery: $(VENV)/.ready-dev ## draw the gallery of operators in docs/operators.md anew
	$(BIN)/python docs/gallery.py

docs: $(VENV)/.ready-docs ## the documentation as a site, build/site/index.html: tutorials run, no warning
	$(BIN)/python -m sphinx -q -E -W --keep-going docs build/site
	$(BIN)/python docs/check_site.py build/site

docs-links: $(VENV)/.ready-docs ## look up every link that leaves the site; needs a network
	$(BIN)/python -m sphinx -q -E -D nb_execution_mode=off -b linkcheck docs build/links

dist: $(VENV)/.ready-dev ## wheel and source archive in dist/, checked: what they hold, what an index would say
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python release/contents.py dist

try-wheel: dist ## the README's commands from the wheel in an empty environment; PYTHONS="python3.11 python3.12"
	$(BIN)/python release/try_wheel.py dist/*.whl $(PYTHONS)

clean: ## remove .venv and .venv-engines, caches and what benchmarks built; runs/ stays
	rm -rf $(VENV) .venv-engines build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each set of packages, so that the demo does not wait for the developers' tools.
# Each is made anew when pyproject.toml changes.
$(VENV)/.ready-all $(VENV)/.ready-dev: $(VENV)/.ready-%: pyproject.toml | $(VENV)/.made
	@echo "Installing softbellman[$*] into $(VENV); the first time takes a few minutes."
	@$(PIP) install --editable ".[$*]"
	@touch $@

# The tutorials use PyTorch.
$(VENV)/.ready-docs: $(VENV)/.ready-torch pyproject.toml
	@echo "Installing softbellman[docs] into $(VENV)."
	@$(PIP) install --editable ".[docs]"
	@touch $@

# The plain name of a release, so that an index that offers a build for the CPU can choose it.
$(VENV)/.ready-torch: $(VENV)/.ready-dev
	@echo "Installing PyTorch into $(VENV)."
	@$(PIP) install "torch==2.13.0"
	@touch $@

$(VENV)/.ready-engines: $(VENV)/.ready-dev
	@echo "Installing Ray and submitit into $(VENV)."
	@$(PIP) install --editable ".[ray,slurm]"
	@touch $@

$(VENV)/.ready-trackers: $(VENV)/.ready-dev
	@echo "Installing softbellman[wandb,mlflow,trackio] into $(VENV)."
	@$(PIP) install --editable ".[wandb,mlflow,trackio]"
	@touch $@

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "softbellman needs Python 3.11 or newer, and '$(PYTHON)' was not found; name one: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "softbellman needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name a newer one: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON)' cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@
