# Everything goes through .venv, which `make venv` makes from requirements/lock.txt.
SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first Python of this machine that TensorFlow 2.21 has wheels for; `make PYTHON=... venv` takes another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
# pytest keeps the tests as it compiles them, where Python may write bytecode: half of the time to collect them.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
STAMP := .venv/.installed
# Hashes are required, nothing is built, and --no-deps because the lock is complete: tf_keras asks for
# `tensorflow` by name, which the lock leaves out where tensorflow-cpu is installed.
INSTALL_FLAGS := --quiet --no-deps --only-binary :all: --require-hashes

.PHONY: help
help:  ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP)  ## Makes .venv with all that the launcher, a training on this machine and the checks need

$(STAMP): requirements/lock.txt requirements/uv.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.10 to 3.13 found, which TensorFlow 2.21 needs." \
		"Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks the venv module." \
		"Debian and Ubuntu have it in a package of its own: apt install python3-venv" >&2; exit 1; }
	@echo "Making .venv (about 2 GB; a minute or two, the first time)"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --disable-pip-version-check $(INSTALL_FLAGS) -r requirements/uv.txt
	@# pip is the slower way, and the one that knows the index in the user's pip.conf.
	@$(BIN)/uv pip install --python $(BIN)/python --compile-bytecode $(INSTALL_FLAGS) -r requirements/lock.txt \
		|| $(BIN)/python -m pip install --disable-pip-version-check $(INSTALL_FLAGS) -r requirements/lock.txt
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@# Also where PYTHONDONTWRITEBYTECODE is set: compiling at each start doubles the time to the first line.
	@$(BIN)/python -m compileall -q launcher worker manifests
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'from launcher.plan import rendering; rendering.compile_templates()'
	@touch $@

.PHONY: demo
demo: $(STAMP)  ## Trains the example on this machine: chief, two workers, ps and evaluator
	@$(BIN)/python -m launcher submit examples/fashion-mnist/cluster.yaml --backend local

# Tests at once. Many wait for processes or servers: two of them leave a quarter of two cores idle.
JOBS ?= 4

.PHONY: test
test: lint  ## The checks of every commit: lint, unit and real
	$(PYTEST) -n $(JOBS) -m "not thorough and not shapes" --ignore=tests/peers tests

DOCS_SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

.PHONY: lint
lint: $(STAMP)  ## Style, types, the import contract, the workflows and the links of the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/actionlint -shellcheck= -pyflakes=
	$(DOCS_SITE)

.PHONY: unit
unit: $(STAMP)  ## The tests that start no TensorFlow and no server: two or three minutes
	$(PYTEST) -n $(JOBS) tests --ignore=tests/api --ignore=tests/local --ignore=tests/worker \
		--ignore=tests/images --ignore=tests/kind --ignore=tests/peers --ignore=tests/chart --ignore=tests/gpu

REAL := tests/worker tests/local tests/api tests/chart tests/images tests/kind tests/gpu
.PHONY: real
real: $(STAMP)  ## The tests with real TensorFlow processes and a real Kubernetes API server: minutes
	$(PYTEST) -n $(JOBS) -m "not thorough and not shapes" $(REAL)

SINCE ?= main

.PHONY: test-changed
test-changed: $(STAMP)  ## Those of `make unit` and `make real` that a change can reach; SINCE=COMMIT, else main
	@tests=$$($(BIN)/python -m tests.changed $(SINCE)) || exit; \
		test -n "$$tests" || { echo "No test is reached."; exit; }; \
		$(PYTEST) -n $(JOBS) -m "not thorough and not shapes" $$tests

RENEW ?=

.PHONY: shapes
shapes: $(STAMP)  ## Trains programs of every shape by every strategy; RENEW=--renew writes the record anew
	$(PYTEST) -n 2 tests/worker/matrix/test_shapes.py $(RENEW)

.PHONY: runtime
runtime: $(STAMP)  ## The thorough tests of the runtime that are not nightly, and a sixth of the matrix of programs
	$(PYTEST) -n $(JOBS) -m "(thorough or shapes) and not nightly" tests/worker

.PHONY: again
again: $(STAMP)  ## The tests that failed in the run before, one after the other
	$(PYTEST) --last-failed --last-failed-no-failures none tests

VERSIONS ?= 2.16 2.17 2.18 2.19 2.20 2.21 2.20@3.9

.PHONY: test-tensorflow
test-tensorflow: $(STAMP)  ## Tries the runtime on other TensorFlows, from PyPI: VERSIONS="2.16 2.20@3.9"; minutes each
	$(BIN)/python -m tests.worker.tensorflow_versions $(VERSIONS)

.PHONY: thorough
thorough: $(STAMP)  ## The tests that `make test` leaves out
	LAUNCHER_TEST_FRESH=1 $(PYTEST) -n 2 -m thorough --ignore=tests/peers tests
	$(PYTEST) --hypothesis-profile=searching tests/unit tests/local/test_store.py \
		tests/api/pod_spec/test_strategic_merge.py

DOCKER ?= docker
TAG ?= dev
# More for `docker build`, as in BUILD_FLAGS='--build-arg VARIANT=gpu'; docs/images.md has more.
BUILD_FLAGS ?=
BUILD = DOCKER_BUILDKIT=1 $(DOCKER) build $(BUILD_FLAGS) --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) \
	--build-arg VERSION=$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' launcher/__init__.py)

.PHONY: images
images:  ## Builds the container images, tf-launcher:dev and tf-launcher-worker:dev
	$(BUILD) --target launcher --tag tf-launcher:$(TAG) .
	$(BUILD) --target worker --tag tf-launcher-worker:$(TAG) .

.PHONY: plain-image
plain-image:  ## Builds tf-launcher-plain:dev, TensorFlow and nothing of ours, which tests/images and tests/kind try
	DOCKER_BUILDKIT=1 $(DOCKER) build $(BUILD_FLAGS) --tag tf-launcher-plain:$(TAG) - < tests/images/plain.Dockerfile

PLAIN_IMAGE := $(if $(LAUNCHER_TEST_KUBECONFIG),$(LAUNCHER_TEST_PLAIN_IMAGE),tf-launcher-plain:$(TAG))

.PHONY: test-kind
test-kind: $(STAMP) $(if $(LAUNCHER_TEST_KUBECONFIG),,images plain-image)  ## The tests on a cluster whose pods run: one of kind's, or a given one
	LAUNCHER_TEST_KIND=1 LAUNCHER_TEST_PLAIN_IMAGE=$(PLAIN_IMAGE) $(PYTEST) tests/kind

.PHONY: test-peers
test-peers: $(STAMP)  ## The tests with Kueue, JobSet, Volcano and coscheduling, of those that LAUNCHER_TEST_KUBECONFIG's cluster has
	$(PYTEST) tests/peers

# More for the checks, as in GPU="--only matrix,xla"; --help prints what it takes.
GPU ?=
# A Python that has TensorFlow with CUDA already, in place of .venv-gpu.
GPU_PYTHON ?=
# A folder with the wheels of requirements/gpu.txt, where no index can be reached.
GPU_WHEELS ?=

.PHONY: test-gpu
test-gpu:  ## Checks on an NVIDIA GPU: strategies, precision, XLA, memory, speed; skipped with the reason where there is none
	@command -v nvidia-smi > /dev/null || { echo "skipped: no NVIDIA GPU here: nvidia-smi, which comes with the" \
		"driver, is not on the PATH"; exit 0; }; \
	began=$$(date +%s); python="$(GPU_PYTHON)"; \
	if test -z "$$python"; then $(MAKE) --no-print-directory .venv-gpu/.installed || exit; python=.venv-gpu/bin/python; fi; \
	"$$python" -m tests.gpu --seconds $$((580 - $$(date +%s) + began)) $(GPU)

.venv-gpu/.installed: requirements/gpu.txt requirements/uv.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.10 to 3.13 found, which TensorFlow 2.21 needs." >&2; exit 1; }
	@echo "Making .venv-gpu (about 6 GB; a few minutes, the first time)"
	@$(PYTHON) -m venv --clear .venv-gpu
	@# From another folder: here uv would leave tensorflow out, see [tool.uv] in pyproject.toml.
	@if test -n "$(GPU_WHEELS)"; then .venv-gpu/bin/python -m pip install --disable-pip-version-check --no-index \
		--find-links "$(GPU_WHEELS)" $(INSTALL_FLAGS) -r requirements/gpu.txt; \
	else .venv-gpu/bin/python -m pip install --disable-pip-version-check $(INSTALL_FLAGS) -r requirements/uv.txt \
		&& (cd / && "$(CURDIR)/.venv-gpu/bin/uv" pip install --python "$(CURDIR)/.venv-gpu/bin/python" \
			--compile-bytecode $(INSTALL_FLAGS) -r "$(CURDIR)/requirements/gpu.txt") \
		|| .venv-gpu/bin/python -m pip install --disable-pip-version-check $(INSTALL_FLAGS) -r requirements/gpu.txt; fi
	@touch $@

.PHONY: bench-gpu
bench-gpu: $(STAMP)  ## Trains ResNet-50 and a transformer by the runtime and by hand on a GPU; BENCH="--tiny" tries it on a CPU
	@$(if $(GPU_PYTHON),$(GPU_PYTHON),$(BIN)/python) -m tests.gpu.speed $(BENCH)

.PHONY: format
format: $(STAMP)  ## Formats the code and sorts its imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: golden
golden: $(STAMP)  ## Renews the golden files in tests/golden; read the diff
	$(PYTEST) tests/unit --quiet --renew

.PHONY: docs
docs: $(STAMP)  ## Renews the parts of docs/ that are made from the code
	$(BIN)/python docs/generate.py
	$(BIN)/python -m docs.pictures

.PHONY: docs-site
docs-site: $(STAMP)  ## Makes the site of docs/ in build/site; a broken link, anchor or forgotten page is an error
	$(DOCS_SITE)

HELM ?= helm

.PHONY: chart
chart: $(STAMP)  ## Renews the parts of the Helm chart that are made from the code
	$(BIN)/python charts/generate.py

.PHONY: package
package: chart  ## Packs the Helm chart into dist/, with the file's JSON Schema beside it
	$(HELM) lint --strict charts/tf-launcher
	$(HELM) package charts/tf-launcher --destination dist
	$(BIN)/python -m launcher schema > dist/cluster.schema.json

.PHONY: bench
bench: $(STAMP) bench-cli  ## Prints the benchmarks' tables
	$(BIN)/python -m benchmarks.first_step

# More for a harness, as in BENCH="--rounds 3 --record"; --help prints what it takes.
BENCH ?=

.PHONY: bench-cli
bench-cli: $(STAMP)  ## Prints what start-up and render take; BENCH="--ecosystem PATH" adds tensorflow/ecosystem's template
	@$(BIN)/python -m benchmarks.cli $(BENCH)

.PHONY: bench-submit
bench-submit: $(STAMP)  ## Prints what a submission and a start cost, on the kubeconfig's cluster or one of its own
	@$(BIN)/python -m benchmarks.submit
	@$(BIN)/python -m benchmarks.start $(BENCH)
	@$(BIN)/python -m benchmarks.start --many --rounds 1 $(BENCH)

.PHONY: bench-train
bench-train: $(STAMP)  ## Trains by the runtime and by the tutorials' loops in turns, then with more workers
	$(BIN)/python -m benchmarks.train $(BENCH)
	$(BIN)/python -m benchmarks.keras_3
	$(BIN)/python -m benchmarks.updates
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.data_workers
	$(BIN)/python -m benchmarks.huge_pages
	$(BIN)/python -m benchmarks.first_step

.PHONY: bench-buckets
bench-buckets: $(STAMP)  ## Saves and resumes 500 MB in a bucket, beside the library's own upload and download
	@$(BIN)/python -m benchmarks.buckets $(BENCH)

.PHONY: bench-checkpoints
bench-checkpoints: $(STAMP)  ## Saves a model of 1 GB with Adam's slots to a disk, S3 and gs://, and prints the pause of each
	@$(BIN)/python -m benchmarks.checkpoints $(BENCH)

.PHONY: bench-recovery
bench-recovery: $(STAMP)  ## Kills a task of each role and times the next step; BENCH="--backend kubernetes --image ..."
	@$(BIN)/python -m benchmarks.recovery $(BENCH)

SOAK ?=

.PHONY: soak
soak: $(STAMP)  ## An hour of small runs with random kills, and what is left of them; SOAK="--minutes 5" does less
	@$(BIN)/python -m benchmarks.soak $(SOAK)

IDLE ?=

.PHONY: idle
idle: $(STAMP)  ## Prints what a run costs a cluster while nothing happens; IDLE="--minutes 1" looks on for less long
	@$(BIN)/python -m benchmarks.idle $(IDLE)

OUTAGES ?=

.PHONY: outages
outages: $(STAMP)  ## Runs commands while the API server is away; OUTAGES="--seconds 10 --only wait" does less
	@$(BIN)/python -m benchmarks.outages $(OUTAGES)

CHAOS ?=

.PHONY: chaos
chaos: $(STAMP)  ## Kills tasks of real runs at random; CHAOS="--rounds 3 --strategy ParameterServer" does less
	@$(BIN)/python -m benchmarks.chaos $(CHAOS)

ENDLESS ?=

.PHONY: chaos-endless
chaos-endless: $(STAMP)  ## Kills tasks in an epoch that never ends, ten minutes for each strategy; ENDLESS="--minutes 1" does less
	@$(BIN)/python -m benchmarks.endless $(ENDLESS)

.PHONY: lock
lock: $(STAMP)  ## Renews the lock files; UPGRADE=--upgrade takes the newest versions
	$(BIN)/uv pip compile pyproject.toml --extra worker --extra controller --group dev --output-file requirements/lock.txt \
		--universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --quiet $(UPGRADE)
	$(BIN)/uv pip compile --group setup --constraints requirements/lock.txt --output-file requirements/uv.txt \
		--universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --quiet $(UPGRADE)
	@# --no-config: that tensorflow-cpu takes tensorflow's place is not for this one.
	$(BIN)/uv pip compile requirements/gpu.in --no-config --constraints requirements/lock.txt \
		--output-file requirements/gpu.txt \
		--universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --quiet $(UPGRADE)

.PHONY: clean
clean:  ## Removes .venv and all caches
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
