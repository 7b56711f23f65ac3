# make test | test-slow | test-gpu | coverage | grid | lint | bench | docs: each first brings .venv up to date with requirements.lock.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
# CUDA=no installs none of CUDA's packages, for a $(VENV) that has a CPU build of torch already; see docs/quickstart.md.
CUDA ?= yes
CUDA_PACKAGES := ^(nvidia|cuda|triton)

unexport PYTHONDONTWRITEBYTECODE  # workers would compile our code anew, each of them

.PHONY: test test-slow test-gpu coverage grid lint bench docs lock clean

test: $(READY)
	$(PY) -m pytest -m "not slow"

test-slow: $(READY)
	$(PY) -m pytest -m slow --dist loadgroup tests

# The tests marked gpu, one after the other. `make test-gpu PY=python3` takes a Python of your own that has torch and pytest, and
# installs nothing; tests that need Ray, MLflow or Optuna are skipped where they are missing. ARGS="--shuffle 1": another order.
test-gpu: $(if $(filter $(VENV)/bin/python,$(PY)),$(READY))
	$(PY) -m pytest -o addopts="--strict-markers --strict-config" -rs -m gpu $(ARGS) tests

# Branch coverage of pcl/studies by the tests of it, of commands and of the service, in all of their processes.
coverage: $(READY)
	rm -f .coverage .coverage.*
	COVERAGE_FILE=$(CURDIR)/.coverage $(PY) -m coverage run -m pytest -m "not slow" \
	  tests/studies tests/launch tests/service
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

grid: $(READY)
	$(PY) launch/grid.py --space toy_small --fidelity exact --scale quick

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --num-workers auto

bench: $(READY)
	$(PY) launch/bench.py vmf
	$(PY) launch/bench.py loss
	$(PY) launch/bench.py toy
	$(PY) launch/bench.py cifar
	$(PY) launch/bench.py search

# The generated parts of README.md and docs/, then the manual as a site: open site/index.html. Warnings are errors.
docs: $(READY)
	$(PY) launch/docs.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# The stamp is written last: an interrupted installation is done again. A venv that is older than the lock is
# brought up to date in place. Packages are compiled by all cores, where pip would take one; not compiled at all, their
# warnings would be errors in tests.
COMMA := ,
SIZE := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),about 8 GB$(COMMA) of which 5 are CUDA (to leave it out, see docs/quickstart.md),about 2 GB)
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(f"pcl needs Python 3.11 or newer, but $(PYTHON) is {sys.version.split()[0]}; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@echo "Installing requirements.lock into $(VENV): $(if $(filter no,$(CUDA)),what is missing$(COMMA) without CUDA,$(SIZE))."
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	grep -vE '$(if $(filter no,$(CUDA)),$(CUDA_PACKAGES),^$$)' requirements.lock > $(VENV)/chosen.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile -r $(VENV)/chosen.lock
	-@$(PY) -W ignore -m compileall -qq -j 0 $(VENV)/lib  # a few files of packages are for other Pythons
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

# Resolves the ranges of pyproject.toml anew and pins the result. On Linux x86_64 torch brings CUDA packages that no
# other machine can install, hence the marker.
lock: SHELL := /bin/bash -o pipefail
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet 'setuptools>=77' torch==2.10.0 torchvision==0.25.0 '.[dev,docs]'
	$(VENV)-lock/bin/python -m pip freeze --all --exclude pcl --exclude pip \
	  | sed -E 's/^((nvidia|cuda|triton)[^ ]*)$$/\1 ; sys_platform == "linux" and platform_machine == "x86_64"/; s/^(torch|torchvision)==([^+]*)\+.*/\1==\2/' \
	  > requirements.new
	mv requirements.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) build site *.egg-info .coverage .coverage.* .hypothesis .pytest_cache .mypy_cache .ruff_cache
