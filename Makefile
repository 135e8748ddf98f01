# Needs Python 3.11 or newer, make and a package index; everything else goes into .venv, and into .venv-* on top of it.
# Another Python: make PYTHON=/path/to/python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, and kept so: all at once would take half of an installation's time.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip -qq --disable-pip-version-check install --no-compile
PYTEST_ARGS ?=
PYTHONS ?= $(PYTHON)
DEMO_OUT := runs/demo-$(shell date +%Y%m%d-%H%M%S)

# Another Python than that of an environment that is there would go unused in silence.
ifeq ($(origin PYTHON)$(filter clean help,$(MAKECMDGOALS)),command line)
ifneq ($(wildcard $(VENV)/.made),)
ifneq ($(shell $(BIN)/python -V 2>&1),$(shell $(PYTHON) -V 2>&1))
$(error $(VENV) has $(shell $(BIN)/python -V 2>&1), and $(PYTHON) is $(shell $(PYTHON) -V 2>&1); run "make clean" first)
endif
endif
endif

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo demo-atari test test-slow test-torch test-trackers test-integrations test-engines lint format hooks benchmark
.PHONY: gallery docs docs-links dist try-wheel clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 19

demo: $(VENV)/.ready-all ## compare three operators on a MinAtar game, five seeds each, to a finished page; about five minutes
	$(BIN)/softbellman compare minatar/breakout --operators max "softmax(30)" "mellowmax(30)" --seeds 5 --preset demo-minatar --out $(DEMO_OUT)
	@echo "Runs so short show the first steps of learning: see the README for longer ones."

demo-atari: $(VENV)/.ready-all ## train on a real Atari game for a few minutes; draw its curve, film a game
	@echo "This shows that everything works. So few steps cannot teach the game: see the README for real runs."
	$(BIN)/softbellman train atari/breakout --operator "softmax(5)" --preset demo-atari --seed 0 --out $(DEMO_OUT)
	$(BIN)/softbellman watch $(DEMO_OUT)

test: $(VENV)/.ready-dev ## the fast tests that need no package beyond `dev`
	$(BIN)/python -m pytest -m "not slow and not torch and not trackers and not integrations and not engines and not docs" \
	  --numprocesses auto --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.ready-dev ## the tests that train for minutes, or run a whole example or benchmark
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

test-torch: $(VENV)-torch/.ready ## operators on PyTorch tensors and in Stable-Baselines3, exported networks
	$(VENV)-torch/bin/python -m pytest -m torch $(PYTEST_ARGS)

test-integrations: $(VENV)-integrations/.ready ## operators in Tianshou, TorchRL and RLlib
	$(VENV)-integrations/bin/python -m pytest -m integrations tests/integrations $(PYTEST_ARGS)

test-engines: $(VENV)-engines/.ready ## the engines on Ray and Slurm
	$(VENV)-engines/bin/python -m pytest -m engines $(PYTEST_ARGS)

test-trackers: $(VENV)-trackers/.ready ## rows in Weights & Biases, MLflow and Trackio, offline
	$(VENV)-trackers/bin/python -m pytest -m trackers $(PYTEST_ARGS)

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

docs: $(VENV)-docs/.ready ## the documentation as a site, build/site/index.html: tutorials run, no warning; looked at in a browser
	$(VENV)-docs/bin/python -m sphinx -q -E -W --keep-going docs build/site
	$(VENV)-docs/bin/python docs/check_site.py build/site
	$(VENV)-docs/bin/python -m pytest -q -m docs tests/test_site.py

docs-links: $(VENV)-docs/.ready ## look up every link that leaves the site; needs a network
	$(VENV)-docs/bin/python -m sphinx -q -E -D nb_execution_mode=off -b linkcheck docs build/links

dist: $(VENV)/.ready-dev ## wheel and source archive in dist/, checked: what they hold, what an index would say
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python release/contents.py dist

try-wheel: dist ## the README's commands from the wheel in an empty environment; PYTHONS="python3.11 python3.12"
	$(BIN)/python release/try_wheel.py dist/*.whl $(PYTHONS)

clean: ## remove .venv and those on top of it, caches and what benchmarks built; runs/ stays
	rm -rf $(VENV) $(ON_TOP:%=$(VENV)-%) build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each set of packages, so that the demo does not wait for the developers' tools.
# Each is made anew when pyproject.toml changes.
$(VENV)/.ready-all $(VENV)/.ready-dev: $(VENV)/.ready-%: pyproject.toml | $(VENV)/.made
	@echo "Installing softbellman[$*] into $(VENV); the first time takes a few minutes."
	@$(BIN)/python $(INSTALL) --editable ".[$*]"
	@touch $@

# Environments on top of .venv: libraries that ask for PyTorch, or for other versions than `dev` has, leave it as it is.
# The plain name of a release of PyTorch, so that an index that offers a build for the CPU can choose it.
ON_TOP := torch trackers integrations engines docs
$(VENV)-torch/.ready: EXTRAS := torch,onnx,sb3
$(VENV)-torch/.ready: MORE := "torch==2.13.0" onnxruntime
$(VENV)-trackers/.ready: EXTRAS := wandb,mlflow,trackio
$(VENV)-integrations/.ready: EXTRAS := tianshou,torchrl,rllib
$(VENV)-integrations/.ready: MORE := "torch==2.13.0"
$(VENV)-engines/.ready: EXTRAS := ray,slurm
$(VENV)-docs/.ready: EXTRAS := docs
$(VENV)-docs/.ready: MORE := "torch==2.13.0"
$(ON_TOP:%=$(VENV)-%/.ready): $(VENV)-%/.ready: $(VENV)/.ready-dev
	@echo "Installing softbellman[$(EXTRAS)] into $(VENV)-$*; this takes minutes."
	@$(BIN)/python -m venv --clear $(VENV)-$*
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$($(VENV)-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth
	@$(VENV)-$*/bin/python $(INSTALL) $(MORE) --editable ".[$(EXTRAS)]"
	@touch $@

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "softbellman needs Python 3.11 or newer, and '$(PYTHON)' was not found; name one: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "softbellman needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name a newer one: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON)' cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@
