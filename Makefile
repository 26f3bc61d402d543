# Everything a newcomer needs: `make demo` shows it, `make test` checks it. Both make .venv themselves and can be repeated.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOWEST ?= .venv-lowest
RESULTS ?= demo-results
PYTEST_ARGS ?=

# These tests compute and render: several run at a time. The others measure, watch processes and locks, or look back on
# one another: one by one.
HOST_KERNELS := $(addprefix test_host_,access arithmetic arrays attention kernels matrix pointwise rows signature stream)
BESIDE_OTHERS := $(addprefix tests/,domain kernels suite ptx storage rendering commands browser test_revision.py test_wheel.py \
	test_make.py $(addprefix plugin/,test_traffic_device.py test_verdict_table.py test_against_verdict_table.py) \
	$(HOST_KERNELS:%=devices/%.py))

# CuPy for the CUDA that the driver speaks, where there is an NVIDIA driver; the host's memory otherwise.
CUDA_MAJOR := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: \([0-9]*\).*/\1/p')
DEVICE_EXTRA := $(if $(filter 12,$(CUDA_MAJOR)),cuda12,$(if $(CUDA_MAJOR),cuda13))

.PHONY: help demo test lint unit lowest docs traffic bench gpu gpu-venv clean

help:
	@echo "make demo   measure this machine, compare with a baseline taken just now, write the summary ($(RESULTS)/)"
	@echo "make test   lint, types, architecture and every test that this machine can run"
	@echo "make lowest the tests with the oldest releases of the dependencies that pyproject.toml allows"
	@echo "make docs   the site, strict, into docs/_build"
	@echo "make traffic  without a GPU: count what the shipped kernels ask of memory, judge it by baselines/ (half a minute)"
	@echo "make bench  the long experiments behind docs/measurements.md (on a quiet machine)"
	@echo "make gpu    on a machine with a GPU: tests/gpu, the suite, baselines/<device>.yaml, docs/gpu/<device>.md"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,report$(if $(DEVICE_EXTRA),$(comma)$(DEVICE_EXTRA))]'
	@echo "Compiling the suite's kernels, once …"
	@$(BIN)/python -m pytest -q --no-header -p no:cacheprovider --pyargs pytest_bandwidth.suite --bandwidth-disable >$@.log || (cat $@.log; false)
	@touch $@

# What counting takes and no more: CI's job of it begins minutes earlier.
$(VENV)/.traffic: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,traffic]' --group nvrtc
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,traffic,report,history]' --group dev --group browser
	@touch $@

comma := ,

demo: $(VENV)/.demo
	@$(BIN)/python benchmarks/demo.py $(RESULTS)

test: lint unit

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/jactionlint
	$(BIN)/zizmor --offline --no-progress --quiet .github

unit: $(VENV)/.test
	$(BIN)/coverage erase
	COVERAGE_FILE=.coverage.beside $(BIN)/python -m pytest -m 'not experiment' -n auto --maxprocesses=8 --dist=loadfile --cov --cov-report= \
		$(BESIDE_OTHERS)
	$(BIN)/coverage run -m pytest -m 'not experiment' $(addprefix --ignore=,$(BESIDE_OTHERS))
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty

# The oldest releases that pyproject.toml allows, as one set, in an environment of its own. The compile gate is the newest
# compiler's: its warnings and registers.
lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[cpu,traffic,report,history]' \
		--group dev --group browser
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python 'nvidia-cuda-nvrtc==13.0.*'
	$(LOWEST)/bin/python -m pytest -m 'not experiment' --ignore=tests/kernels/test_kernel_compile.py $(PYTEST_ARGS)

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

gpu-venv: $(VENV)/.test
	$(if $(DEVICE_EXTRA),$(BIN)/python -m pip install --quiet --editable '.[$(DEVICE_EXTRA)]')

gpu: gpu-venv
	$(BIN)/python -m pytest tests/gpu
	$(BIN)/python benchmarks/gpu.py

clean:
	rm -rf $(VENV) $(LOWEST) $(RESULTS) build dist docs/_build docs/_generated .coverage* .mypy_cache .ruff_cache .pytest_cache
