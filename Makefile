# Everything a newcomer needs: `make demo` shows it, `make test` checks it. Both make .venv themselves and can be repeated.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOWEST ?= .venv-lowest
FLEET ?= .venv-fleet
# What CI tests PyTorch and Triton with.
TORCH ?= 2.13.0
TRITON ?= 3.9.0
# Whose program reads what is exported for it; it pins NumPy, and so has an environment of its own.
OTAVA ?= 0.8.0
OTAVA_VENV := .venv-otava
RESULTS ?= demo-results
PYTEST_ARGS ?=
# Not empty: install just what .ci/requirements/ names, by hash, as CI does.
LOCKED ?=
# Neighbours that keep the machine busy while the tests run: steady, memory, bursts or builds (tests/support/neighbours.py).
BESIDE ?=
# Not empty: tests also count which lines run, for `make coverage`.
COVERAGE ?=

# tests/conftest.py says which tests are slow, and which have to run in one process.
SPREAD := -n auto --maxprocesses=8 --dist=loadgroup --durations=50
PYTEST = $(if $(BESIDE),$(BIN)/python tests/support/neighbours.py $(BESIDE)) $(if $(COVERAGE),$(BIN)/coverage run,$(BIN)/python) -m pytest $(SPREAD)
# A selection of one's own may hold none of the kind.
NONE_IS_FINE = $(if $(PYTEST_ARGS),|| test $$? -eq 5)

# CuPy for the CUDA that the driver speaks, where there is an NVIDIA driver; the host's memory otherwise.
CUDA_MAJOR := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: \([0-9]*\).*/\1/p')
DEVICE_EXTRA := $(if $(filter 12,$(CUDA_MAJOR)),cuda12,$(if $(CUDA_MAJOR),cuda13))

# Not empty: a folder of wheels, made by `make gpu-wheels` on a machine with a network, that `make gpu` is to run from.
WHEELS ?=
GPU_EXTRA := $(or $(DEVICE_EXTRA),cuda13)
GPU_VENV := $(if $(WHEELS),.venv-gpu,$(VENV))

# install(name of the list of hashes, extras, groups)
comma := ,
LOCK_ARGS = --quiet --require-hashes --requirement .ci/requirements/$(1).txt
install = $(if $(LOCKED),$(BIN)/python -m pip install $(call LOCK_ARGS,$(1)) && \
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .,\
	$(BIN)/python -m pip install --quiet --editable '.[$(2)]' $(3))

.PHONY: help demo test test-slow lint coverage venv lock lowest frameworks fleet trackers docs traffic bench gpu gpu-first gpu-suite gpu-selftest gpu-venv gpu-wheels dist clean

help:
	@echo "make demo   this machine, a baseline, a kernel slowed on purpose and found, the reports ($(RESULTS)/); two minutes"
	@echo "make test   lint, types, architecture and the tests that are not slow; PYTEST_ARGS=tests/domain for one room"
	@echo "make test-slow  the tests that measure in real child processes, build, install or take long"
	@echo "                both beside processes that keep the machine busy: BESIDE=steady, memory, bursts or builds"
	@echo "make lowest the tests with the oldest releases of the dependencies that pyproject.toml allows"
	@echo "make frameworks  the tests of PyTorch, JAX, tinygrad and Triton, none skipped: PyTorch is installed from its own registry"
	@echo "make fleet  the tests of the fleet on a Ray cluster of this machine, and of a history in S3, in an environment of their own (minutes)"
	@echo "make trackers  exports read by the trackers' own programs: Apache Otava is installed into $(OTAVA_VENV); promtool where it is there"
	@echo "make docs   the site, strict, into docs/_build"
	@echo "make traffic  without a GPU: count what the shipped kernels ask of memory, judge it by baselines/ (half a minute)"
	@echo "make bench  the long experiments behind docs/measurements.md (on a quiet machine)"
	@echo "make gpu    on a machine with a GPU: gpu-first, gpu-suite (baselines/<device>.yaml, docs/gpu/<device>.md), gpu-selftest"
	@echo "make gpu-wheels  gathers what a machine without a network takes: make gpu WHEELS=build/gpu-wheels"
	@echo "make dist   wheel and source into dist/, checked, and the wheel tried in an environment of its own"
	@echo "make lock   choose the releases anew that CI installs (.ci/requirements/)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),,$(BIN)/python -m pip install --quiet --upgrade pip)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,report$(if $(DEVICE_EXTRA),$(comma)$(DEVICE_EXTRA))]'
	@touch $@

# What counting takes and no more: CI's job of it begins minutes earlier.
$(VENV)/.traffic: pyproject.toml | $(BIN)/python
	$(call install,traffic,cpu$(comma)traffic,--group nvrtc)
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(call install,test,cpu$(comma)traffic$(comma)report$(comma)history$(comma)bucket,--group dev --group browser)
	@touch $@

$(VENV)/.release: pyproject.toml | $(BIN)/python
	$(if $(LOCKED),$(BIN)/python -m pip install $(call LOCK_ARGS,release),$(BIN)/python -m pip install --quiet --group release)
	@touch $@

venv: $(VENV)/.test

demo: $(VENV)/.demo
	@$(BIN)/python benchmarks/demo.py $(RESULTS)

# Byte code of what starts with pytest (tests/conftest.py writes the rest).
test test-slow: export PYTHONDONTWRITEBYTECODE =

test: lint
	$(PYTEST) -m 'not slow and not experiment' $(PYTEST_ARGS) $(NONE_IS_FINE)

test-slow: $(VENV)/.test
	$(PYTEST) -m 'slow and not experiment' $(PYTEST_ARGS) $(NONE_IS_FINE)

# .pre-commit-config.yaml runs the same.
lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/jactionlint
	$(BIN)/zizmor --offline --no-progress --quiet .github

# Of what `make test COVERAGE=1` and `make test-slow COVERAGE=1` ran.
coverage:
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty

# The oldest releases that pyproject.toml allows, as one set, in an environment of its own. The compile gate is the newest
# compiler's: its warnings and registers.
lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[cpu,traffic,report,history,bucket]' \
		--group dev --group browser
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python 'nvidia-cuda-nvrtc==13.0.*'
	$(LOWEST)/bin/python -m pytest $(SPREAD) -m 'not experiment' --ignore=tests/kernels/test_kernel_compile.py $(PYTEST_ARGS)

# PyTorch's build for processors; PyPI's brings gigabytes of CUDA. Its registry names it by version: the list of hashes is PyPI's.
frameworks: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --index-url https://download.pytorch.org/whl/cpu 'torch==$(TORCH)'
	$(BIN)/python -m pip install --quiet 'triton==$(TRITON)'
	$(BIN)/python -c 'import jax, tinygrad, torch, triton'
	$(BIN)/python -m pytest tests/frameworks $(PYTEST_ARGS)

# Not in .venv: Ray imports amdsmi where it is installed, and fails of it where AMD's library is not. An S3 and its client
# bring as much as Ray does.
fleet: $(FLEET)/.test
	$(FLEET)/bin/python -c 'import moto.server, ray, s3fs'
	$(FLEET)/bin/python -m pytest tests/features/fleet tests/features/history/commands/test_history_in_s3.py --durations=10 $(PYTEST_ARGS)

$(FLEET)/.test: BIN := $(FLEET)/bin
$(FLEET)/.test: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(FLEET)
	$(if $(LOCKED),,$(BIN)/python -m pip install --quiet --upgrade pip)
	$(call install,fleet,bucket$(comma)fleet,--group s3)
	@touch $@

trackers: $(VENV)/.test
	test -x $(OTAVA_VENV)/bin/python || $(PYTHON) -m venv $(OTAVA_VENV)
	$(OTAVA_VENV)/bin/python -m pip install --quiet 'apache-otava==$(OTAVA)'
	$(OTAVA_VENV)/bin/otava --help >/dev/null
	$(BIN)/python -m pytest tests/features/exports/test_export_command.py $(PYTEST_ARGS)

docs: $(VENV)/.test
	rm -rf docs/_build
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "docs/_build/index.html"

traffic: $(VENV)/.traffic
	$(BIN)/python -m pytest --pyargs pytest_bandwidth.suite --bandwidth-device=traffic --bandwidth-baseline=baselines/ \
		$(PYTEST_ARGS)

bench: $(VENV)/.test
	$(BIN)/python -m pytest -m experiment
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/ceiling.py
	$(BIN)/python benchmarks/gate.py

# Three parts of at most eight minutes: what every figure rests on, the suite in ten processes, the self-test. A part goes
# on after a red test; what each step said stays in gpu-results/.
gpu: gpu-venv
	$(GPU_VENV)/bin/python benchmarks/gpu_session.py
gpu-first gpu-suite gpu-selftest: gpu-%: gpu-venv
	$(GPU_VENV)/bin/python benchmarks/gpu_session.py $*

gpu-venv: $(if $(WHEELS),$(GPU_VENV)/.gpu,$(VENV)/.test)
	$(if $(WHEELS),,$(if $(DEVICE_EXTRA),$(call install,$(DEVICE_EXTRA),$(DEVICE_EXTRA))))

# What is there already (CuPy, torch) stays in use.
$(GPU_VENV)/.gpu:
	$(PYTHON) -m venv --system-site-packages $(GPU_VENV)
	$(GPU_VENV)/bin/python -m pip install --quiet --no-index --find-links $(WHEELS) 'pytest-bandwidth[$(GPU_EXTRA)]'
	@touch $@

gpu-wheels: | $(BIN)/python
	rm -rf build/gpu-wheels
	$(BIN)/python -m pip wheel --quiet --wheel-dir build/gpu-wheels '.[$(GPU_EXTRA)]'

# What release.yml publishes. The wheel measures in an environment that knows nothing of this folder.
dist: $(VENV)/.release
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/tried
	$(if $(LOCKED),build/tried/bin/python -m pip install $(call LOCK_ARGS,release))
	build/tried/bin/python -m pip install --quiet $(if $(LOCKED),--no-deps) "$$(ls dist/*.whl)[cpu]"
	cd build && tried/bin/pytest-bandwidth --version && tried/bin/python -m pytest -c /dev/null --pyargs pytest_bandwidth.suite \
		-p no:cacheprovider --bandwidth-device=cpu -k copy-plain-float32

# For all of CI's Pythons. No list names a registry: pip takes the one that it was told.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --no-emit-index-url \
	--custom-compile-command "make lock" pyproject.toml --group build
lock: | $(BIN)/python
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) --upgrade --extra cpu --extra traffic --extra report --extra history --extra bucket --group dev --group browser \
		--output-file .ci/requirements/test.txt
	$(LOCK) -c .ci/requirements/test.txt --extra cpu --extra traffic --group nvrtc -o .ci/requirements/traffic.txt
	$(LOCK) -c .ci/requirements/test.txt --extra cpu --group release -o .ci/requirements/release.txt
	$(LOCK) -c .ci/requirements/test.txt --extra cuda12 -o .ci/requirements/cuda12.txt
	$(LOCK) -c .ci/requirements/test.txt --extra cuda13 -o .ci/requirements/cuda13.txt
	$(LOCK) -c .ci/requirements/test.txt --extra bucket --extra fleet --group s3 -o .ci/requirements/fleet.txt

clean:
	rm -rf $(VENV) .venv-gpu gpu-results $(LOWEST) $(FLEET) $(RESULTS) build dist docs/_build docs/_generated .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache
