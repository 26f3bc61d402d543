# Everything a newcomer needs: `make demo` shows it, `make test` checks it. Each target makes its environment and can be repeated.
PYTHON ?= python3
VENV ?= .venv
LOWEST ?= .venv-lowest
FLEET ?= .venv-fleet
RESULTS ?= demo-results
# Not empty: LOCKED installs just what .ci/requirements.txt names, by hash; COVERAGE counts lines for `make coverage`; BESIDE names
# neighbours that keep the machine busy (tests/support/neighbours.py); WHEELS is a folder that `make gpu-wheels` filled.
BIN := $(VENV)/bin
# CuPy for the CUDA that the driver speaks, where there is an NVIDIA driver; the host's memory otherwise.
CUDA_MAJOR := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: \([0-9]*\).*/\1/p')
DEVICE_EXTRA := $(if $(filter 12,$(CUDA_MAJOR)),cuda12,$(if $(CUDA_MAJOR),cuda13))
GPU_VENV := $(if $(WHEELS),.venv-gpu,$(VENV))
# tests/conftest.py says which tests are slow, and which have to run in one process.
SPREAD := -n auto --maxprocesses=8 --dist=loadgroup --durations=50
PYTEST = $(if $(BESIDE),$(BIN)/python tests/support/neighbours.py $(BESIDE)) $(BIN)/$(if $(COVERAGE),coverage run,python) -m pytest $(SPREAD)
# A selection of one's own may hold none of the kind.
NONE_IS_FINE = $(if $(PYTEST_ARGS),|| test $$? -eq 5)

# By purpose what an environment takes: extras and dependency groups of pyproject.toml. CI has a list of hashes of each.
PURPOSES := test traffic release cuda12 cuda13 fleet
EXTRAS_test := cpu traffic report history bucket
GROUPS_test := dev browser
EXTRAS_traffic := cpu traffic
GROUPS_traffic := nvrtc
EXTRAS_release := cpu
GROUPS_release := release
EXTRAS_cuda12 := cuda12
EXTRAS_cuda13 := cuda13
EXTRAS_fleet := bucket fleet
GROUPS_fleet := s3
comma := ,
package = '.[$(subst $(subst ,, ),$(comma),$(EXTRAS_$(1)))]' $(addprefix --group ,$(GROUPS_$(1)))
# locked, install(folder of programs, purpose)
locked = $(1)/python .ci/lists.py $(2) >$(1)/$(2).txt && \
	$(1)/python -m pip install --quiet --require-hashes --requirement $(1)/$(2).txt
install = $(if $(LOCKED),$(call locked,$(1),$(2)) && \
	$(1)/python -m pip install --quiet --no-deps --no-build-isolation --editable .,\
	$(1)/python -m pip install --quiet --editable $(call package,$(2)))

.PHONY: help demo test test-slow lint coverage venv lock lowest frameworks fleet trackers docs traffic bench gpu gpu-first gpu-suite gpu-selftest gpu-venv gpu-wheels dist clean
help:
	@sed -n 's/^\([a-z -]*\):.*## /make \1: /p' Makefile
%/bin/python:
	$(PYTHON) -m venv $*
	$(if $(LOCKED)$(filter $(LOWEST),$*),,$@ -m pip install --quiet --upgrade pip)
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,report$(if $(DEVICE_EXTRA),$(comma)$(DEVICE_EXTRA))]'
	@touch $@
$(addprefix $(VENV)/.,$(PURPOSES)): $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(call install,$(BIN),$*)
	@touch $@
$(FLEET)/.fleet: pyproject.toml | $(FLEET)/bin/python
	$(call install,$(FLEET)/bin,fleet)
	@touch $@
$(LOWEST)/.test: pyproject.toml | $(LOWEST)/bin/python
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python --resolution lowest-direct --editable $(call package,test)
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python 'nvidia-cuda-nvrtc==13.0.*'
	@touch $@
# What is there already (CuPy, torch) stays in use.
.venv-gpu/.gpu:
	$(PYTHON) -m venv --system-site-packages .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --no-index --find-links $(WHEELS) 'pytest-bandwidth[$(or $(DEVICE_EXTRA),cuda13)]'
	@touch $@
venv: $(VENV)/.test
gpu-venv: $(if $(WHEELS),.venv-gpu/.gpu,$(VENV)/.test $(addprefix $(VENV)/.,$(DEVICE_EXTRA)))

demo: $(VENV)/.demo ## this machine, a kernel slowed on purpose and found, the reports (demo-results/); two minutes
	@$(BIN)/python benchmarks/demo.py $(RESULTS)
# Byte code of what starts with pytest (tests/conftest.py writes the rest).
test test-slow: export PYTHONDONTWRITEBYTECODE =
test: lint ## lint, and the tests that are not slow; PYTEST_ARGS=tests/domain for one room, BESIDE=steady beside busy processes
	$(PYTEST) -m 'not slow and not experiment' $(PYTEST_ARGS) $(NONE_IS_FINE)
test-slow: $(VENV)/.test ## the tests that measure in real child processes, build, install or take long
	$(PYTEST) -m 'slow and not experiment' $(PYTEST_ARGS) $(NONE_IS_FINE)
lint: $(VENV)/.test ## style, types, architecture, workflows, as .pre-commit-config.yaml
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/jactionlint && $(BIN)/zizmor --offline --no-progress --quiet .github
coverage: ## of what `make test COVERAGE=1` and `make test-slow COVERAGE=1` ran
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty
# The compile gate is the newest compiler's: its warnings and registers.
lowest: $(LOWEST)/.test ## the tests with the oldest releases that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest $(SPREAD) -m 'not experiment' --ignore=tests/kernels/test_kernel_compile.py $(PYTEST_ARGS)
# PyTorch's build for processors; PyPI's brings gigabytes of CUDA. Its registry names it by version: the list of hashes is PyPI's.
TYPED := test_a_page_typed_in_an_empty_folder_prints_what_it_shows
frameworks: $(VENV)/.test ## the tests of PyTorch, JAX, tinygrad and Triton, none skipped
	$(BIN)/python -m pip install --quiet --index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet 'triton==3.9.0'
	$(BIN)/python -c 'import jax, tinygrad, torch, triton'
	$(BIN)/python -m pytest tests/frameworks "tests/product/test_tutorial.py::$(TYPED)[frameworks.md-1]" $(PYTEST_ARGS)
# Not in .venv: Ray imports amdsmi where it is installed, and fails without AMD's library.
fleet: $(FLEET)/.fleet ## the tests of the fleet on a Ray cluster of this machine, and of a history in S3 (minutes)
	$(FLEET)/bin/python -c 'import moto.server, ray, s3fs'
	$(FLEET)/bin/python -m pytest tests/features/fleet tests/features/history/test_history_in_s3.py --durations=10 $(PYTEST_ARGS)
# Otava pins NumPy, and so has an environment of its own.
trackers: $(VENV)/.test | .venv-otava/bin/python ## exports read by Apache Otava, and by promtool where it is there
	.venv-otava/bin/python -m pip install --quiet 'apache-otava==0.8.0'
	.venv-otava/bin/otava --help >/dev/null
	$(BIN)/python -m pytest tests/features/exports/test_export_command.py $(PYTEST_ARGS)
docs: $(VENV)/.test ## the site, strict, into docs/_build
	rm -rf docs/_build
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "docs/_build/index.html"
traffic: $(VENV)/.traffic ## without a GPU: count what the shipped kernels ask of memory, judge it by baselines/ (half a minute)
	$(BIN)/python -m pytest --pyargs pytest_bandwidth.suite --bandwidth-device=traffic --bandwidth-baseline=baselines/ $(PYTEST_ARGS)
bench: $(VENV)/.test ## the long experiments behind docs/measurements.md (on a quiet machine)
	$(BIN)/python -m pytest -m experiment
	$(foreach script,overhead ceiling gate,$(BIN)/python benchmarks/$(script).py &&) true
gpu: gpu-venv ## on a machine with a GPU: gpu-first, gpu-suite (baselines/, docs/gpu/) and gpu-selftest, eight minutes each at most
	$(GPU_VENV)/bin/python benchmarks/gpu_session.py
gpu-first gpu-suite gpu-selftest: gpu-%: gpu-venv
	$(GPU_VENV)/bin/python benchmarks/gpu_session.py $*
gpu-wheels: | $(BIN)/python ## what a machine without a network takes: make gpu WHEELS=build/gpu-wheels
	rm -rf build/gpu-wheels
	$(BIN)/python -m pip wheel --quiet --wheel-dir build/gpu-wheels '.[$(or $(DEVICE_EXTRA),cuda13)]'
# The wheel measures in an environment that knows nothing of this folder.
dist: $(VENV)/.release ## wheel and source into dist/, as release.yml publishes them, checked and tried
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/tried
	$(if $(LOCKED),$(call locked,build/tried/bin,release))
	build/tried/bin/python -m pip install --quiet $(if $(LOCKED),--no-deps) "$$(ls dist/*.whl)[cpu]"
	cd build && tried/bin/pytest-bandwidth --version && tried/bin/python -m pytest -c /dev/null --pyargs pytest_bandwidth.suite \
		-p no:cacheprovider --bandwidth-device=cpu -k copy-plain-float32
# For all of CI's Pythons, with the releases of the tests' list. No list names a registry: pip takes the one that it was told.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --no-emit-index-url \
	--custom-compile-command "make lock" pyproject.toml --group build
lock: | $(BIN)/python ## choose anew the releases that CI installs (.ci/requirements.txt)
	$(BIN)/python -m pip install --quiet uv
	rm -rf build/lock && mkdir -p build/lock
	$(foreach name,$(PURPOSES),$(LOCK) $(if $(filter test,$(name)),--upgrade,-c build/lock/test.txt) \
		$(addprefix --extra ,$(EXTRAS_$(name))) $(addprefix --group ,$(GROUPS_$(name))) -o build/lock/$(name).txt &&) true
	$(BIN)/python .ci/lists.py --merge $(PURPOSES:%=build/lock/%.txt)
clean: ## remove what was made
	rm -rf $(VENV) .venv-gpu gpu-results $(LOWEST) $(FLEET) .venv-otava $(RESULTS) build dist docs/_build docs/_generated .coverage .coverage.* .*_cache
