# podstamp. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
RUN := $(BIN)/python
STAMP := .venv/.installed
# KEEP=1 leaves the demo up.
KEEP ?=

.PHONY: help venv demo test e2e bench lint format manifests check-manifests lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

venv: $(STAMP) ## set up .venv from the lock file

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: $(PYTHON) is older than Python 3.11: call make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setting up .venv (once, one to two minutes)"
	@rm -rf .venv && $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: venv ## the main job on the embedded API server, told step by step
	@$(RUN) -m tests.demo $(if $(KEEP),--keep)

test: venv ## every hermetic test
	$(RUN) -m pytest -n auto --dist loadfile

e2e: venv ## the same scenarios on a real kube-apiserver and etcd
	$(RUN) -m tests.controlplane build
	$(RUN) -m tests.e2e.routers.install
	$(RUN) -m pytest --control-plane

bench: venv ## the benchmarks (writes build/bench.json)
	$(RUN) -m tests.bench --json build/bench.json

lint: venv check-manifests ## ruff, mypy, import-linter, drift of what is rendered
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

manifests: venv ## render manifests/install.yaml
	$(BIN)/kubectl kustomize manifests/install > manifests/install.yaml

check-manifests: venv
	@$(BIN)/kubectl kustomize manifests/install | diff -u manifests/install.yaml - >&2 \
		|| { echo "make: manifests/install.yaml is behind manifests/base: run make manifests" >&2; exit 1; }

lock: venv ## write the lock files anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --extra postgres pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --extra postgres --group build --group test --group lint --group bench \
		--constraint requirements.lock pyproject.toml --output-file requirements-dev.lock

clean: ## remove what the targets made, the caches too
	rm -rf .venv .cache build .hypothesis .mypy_cache .ruff_cache .import_linter_cache *.egg-info
