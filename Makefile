# Everything a newcomer needs: `make demo` shows it, `make test` checks it. Each target makes its environment and can be repeated.
# Not empty: LOCKED installs just what .ci/requirements.txt names, by hash; COVERAGE counts lines for `make coverage`; BESIDE names
# neighbours that keep the machine busy (tests/support/neighbours.py); WHEELS is a folder of `make gpu-wheels`, beside what is installed.
PYTHON ?= python3
VENV ?= .venv
RESULTS ?= demo-results
BIN := $(VENV)/bin
# CuPy for the CUDA that the driver speaks, where there is an NVIDIA driver; the host's memory otherwise.
DEVICE_EXTRA := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: 12.*/cuda12/p; s/.*CUDA Version: [0-9].*/cuda13/p')
# tests/conftest.py says which tests are slow, and which have to run in one process. A selection of one's own may hold none of a kind.
SPREAD := -n auto --maxprocesses=8 --dist=loadgroup --durations=50
tests = $(if $(BESIDE),$(BIN)/python tests/support/neighbours.py $(BESIDE)) $(BIN)/$(if $(COVERAGE),coverage run,python) -m pytest $(SPREAD) \
	-m '$(1) and not experiment' $(PYTEST_ARGS) $(if $(PYTEST_ARGS),|| test $$? -eq 5)
# By purpose the extras of pyproject.toml, and with a plus its groups, that an environment takes. CI has a list of hashes of each.
PURPOSES := test traffic release cuda12 cuda13 fleet
TAKES_test := cpu traffic report history bucket +dev +browser
TAKES_traffic := cpu traffic +nvrtc
TAKES_release := cpu +release
TAKES_fleet := bucket fleet +s3
extras = $(filter-out +%,$(or $(TAKES_$(1)),$(1)))
groups = $(patsubst +%,--group %,$(filter +%,$(TAKES_$(1))))
comma := ,
package = '.[$(subst $(subst ,, ),$(comma),$(extras))]' $(groups)
# locked, install(folder of programs, purpose)
locked = $(1)/python .ci/lists.py $(2) >$(1)/$(2).txt && $(1)/python -m pip install --quiet --require-hashes --requirement $(1)/$(2).txt
install = $(if $(LOCKED),$(locked) && $(1)/python -m pip install --quiet --no-deps --no-build-isolation --editable .,\
	$(1)/python -m pip install --quiet --editable $(call package,$(2)))
help:
	@sed -n 's/^\([a-z -]*\):.*## /make \1: /p' Makefile
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)
%/bin/python:
	$(PYTHON) -m venv $* $(if $(LOCKED)$(filter .venv-lowest,$*),,&& $@ -m pip install --quiet --upgrade pip)
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,report$(if $(DEVICE_EXTRA),$(comma)$(DEVICE_EXTRA))]' && touch $@
$(addprefix $(VENV)/.,$(PURPOSES)): $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(call install,$(BIN),$*) && touch $@
.venv-fleet/.fleet: pyproject.toml | .venv-fleet/bin/python
	$(call install,.venv-fleet/bin,fleet) && touch $@
.venv-lowest/.test: pyproject.toml | .venv-lowest/bin/python
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --python .venv-lowest/bin/python --resolution lowest-direct --editable $(call package,test)
	.venv-lowest/bin/uv pip install --python .venv-lowest/bin/python 'nvidia-cuda-nvrtc==13.0.*' && touch $@
.venv-gpu/.gpu:
	$(PYTHON) -m venv --system-site-packages .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --no-index --find-links $(WHEELS) 'pytest-bandwidth[$(or $(DEVICE_EXTRA),cuda13)]' && touch $@
venv: $(VENV)/.test
gpu-venv: $(if $(WHEELS),.venv-gpu/.gpu,$(VENV)/.test $(addprefix $(VENV)/.,$(DEVICE_EXTRA)))
demo: $(VENV)/.demo ## this machine, a kernel slowed on purpose and found, the reports (demo-results/); two minutes
	@$(BIN)/python benchmarks/demo.py $(RESULTS)
test test-slow: export PYTHONDONTWRITEBYTECODE = # byte code of what starts with pytest; tests/conftest.py writes the rest
test: lint ## lint, and the tests that are not slow; PYTEST_ARGS=tests/domain for one room, BESIDE=steady beside busy processes
	$(call tests,not slow)
test-slow: $(VENV)/.test ## the tests that measure in real child processes, build, install or take long
	$(call tests,slow)
lint: $(VENV)/.test ## style, types, architecture, workflows, as .pre-commit-config.yaml
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/jactionlint && $(BIN)/zizmor --offline --no-progress --quiet .github
coverage: ## of what `make test COVERAGE=1` and `make test-slow COVERAGE=1` ran
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report --skip-covered --skip-empty
lowest: .venv-lowest/.test ## the tests with the oldest releases that pyproject.toml allows; registers and warnings are the newest compiler's
	.venv-lowest/bin/python -m pytest $(SPREAD) -m 'not experiment' --ignore=tests/kernels/test_kernel_compile.py $(PYTEST_ARGS)
# PyTorch's build for processors; PyPI's brings gigabytes of CUDA. Its registry names it by version: the list of hashes is PyPI's.
TYPED := test_a_page_typed_in_an_empty_folder_prints_what_it_shows
frameworks: $(VENV)/.test ## the tests of PyTorch, JAX, tinygrad, Triton and numba-cuda
	$(BIN)/python -m pip install --quiet --index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet 'triton==3.9.0' 'numba-cuda[cu13]==0.30.4' && $(BIN)/python -c 'import jax, numba_cuda, tinygrad, torch, triton'
	$(BIN)/python -m pytest tests/frameworks "tests/product/test_tutorial.py::$(TYPED)[frameworks.md-2]" $(PYTEST_ARGS)
# In environments of their own: Ray imports amdsmi where it is installed, and fails without AMD's library; Otava pins NumPy.
fleet: .venv-fleet/.fleet ## the tests of the fleet on a Ray cluster of this machine, and of a history in S3 (minutes)
	.venv-fleet/bin/python -c 'import moto.server, ray, s3fs'
	.venv-fleet/bin/python -m pytest tests/features/fleet tests/features/history/test_history_in_s3.py --durations=10 $(PYTEST_ARGS)
trackers: $(VENV)/.test | .venv-otava/bin/python ## exports read by Apache Otava, and by promtool where it is there
	.venv-otava/bin/python -m pip install --quiet 'apache-otava==0.8.0' && .venv-otava/bin/otava --help >/dev/null
	$(BIN)/python -m pytest tests/features/exports/test_export_command.py $(PYTEST_ARGS)
docs: $(VENV)/.test ## the site, strict, into docs/_build
	rm -rf docs/_build && $(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build && echo docs/_build/index.html
traffic: $(VENV)/.traffic ## without a GPU: count what the shipped kernels ask of memory, judge it by baselines/ (half a minute)
	$(BIN)/python -m pytest --pyargs pytest_bandwidth.suite --bandwidth-device=traffic --bandwidth-baseline=baselines/ $(PYTEST_ARGS)
bench: $(VENV)/.test ## the long experiments behind docs/measurements.md (on a quiet machine)
	$(BIN)/python -m pytest -m experiment $(foreach script,overhead plateau gate,&& $(BIN)/python benchmarks/$(script).py)
gpu: gpu-venv ## on a machine with a GPU: gpu-first, gpu-suite (baselines/, docs/gpu/) and gpu-selftest, eight minutes each at most
gpu gpu-first gpu-suite gpu-selftest: gpu-venv
	$(if $(WHEELS),.venv-gpu,$(VENV))/bin/python benchmarks/gpu_session.py $(patsubst gpu-%,%,$(filter-out gpu,$@))
gpu-wheels: | $(BIN)/python ## what a machine without a network takes: make gpu WHEELS=build/gpu-wheels
	rm -rf build/gpu-wheels && $(BIN)/python -m pip wheel --quiet --wheel-dir build/gpu-wheels '.[$(or $(DEVICE_EXTRA),cuda13)]'
dist: $(VENV)/.release ## wheel and source into dist/, as release.yml publishes them, checked, and tried where nothing knows this folder
	rm -rf build dist && $(BIN)/python -m build --no-isolation --outdir dist . && $(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/tried $(if $(LOCKED),&& $(call locked,build/tried/bin,release))
	build/tried/bin/python -m pip install --quiet $(if $(LOCKED),--no-deps) "$$(ls dist/*.whl)[cpu]"
	cd build && tried/bin/pytest-bandwidth --version && tried/bin/python -m pytest -c /dev/null --pyargs pytest_bandwidth.suite \
		-p no:cacheprovider --bandwidth-device=cpu -k copy-plain-float32
# For all of CI's Pythons, with the releases of the tests' list. No list names a registry: pip takes the one that it was told.
lock: | $(BIN)/python ## choose anew the releases that CI installs (.ci/requirements.txt)
	$(BIN)/python -m pip install --quiet uv && rm -rf build/lock && mkdir -p build/lock
	$(foreach name,$(PURPOSES),$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate \
		--no-emit-index-url --custom-compile-command "make lock" pyproject.toml --group build $(addprefix --extra ,$(call extras,$(name))) \
		$(call groups,$(name)) $(if $(filter test,$(name)),--upgrade,-c build/lock/test.txt) -o build/lock/$(name).txt &&) true
	$(BIN)/python .ci/lists.py --merge $(PURPOSES:%=build/lock/%.txt)
clean: ## remove what was made
	rm -rf $(VENV) .venv-gpu gpu-results .venv-lowest .venv-fleet .venv-otava $(RESULTS) build dist docs/_build docs/_generated .coverage* .*_cache
