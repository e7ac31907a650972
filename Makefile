# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# The developer's door.  Everything else is ./dpctl.

PYTHON := .venv/bin/python
C_FILES = $(shell find datapath tests tools -name '*.[ch]')

.PHONY: help setup test soak lint format bench fuzz fresh docs look wheel lock clean

help:
	@echo "make setup   install packages, virtual environment, build C and BPF"
	@echo "make test    everything that selftest runs"
	@echo "make soak    also the long stages: searches with many examples, fresh machines"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make format  ruff format, clang-format"
	@echo "make bench   the engine beside floors and peers: a table of targets (10 minutes, root)"
	@echo "make fuzz    libFuzzer on packet input for a minute (FUZZ_SECONDS=60)"
	@echo "make fresh   the quickstart on fresh machines of Debian 12 and 13, from no package on"
	@echo "             (FRESH=trixie: one of them; FRESH_RUN='./dpctl selftest': another command)"
	@echo "make docs    all pages and a reference as a site, in build/site"
	@echo "make look    the pages in a browser: pictures in build/look, and what axe-core finds"
	@echo "make wheel   a wheel in dist, for machines without a compiler"
	@echo "make lock    write setup/lock.txt anew from pyproject.toml (needs uv)"
	@echo "make clean   remove what was built; the virtual environment stays"

setup:
	./dpctl --version

test:
	./dpctl selftest

soak:
	./dpctl selftest --all

lint: setup
	./dpctl selftest --stage lint

format: setup
	.venv/bin/ruff check --fix-only --quiet .
	.venv/bin/ruff format .
	clang-format -i $(C_FILES)

# A target that is missed is a row of the table, and no error of make.
BENCH_FLAGS ?=
bench: BENCH_DIR := results/speed-$(shell date -u +%Y%m%dT%H%M%SZ)
bench: setup
	./dpctl run experiments/bench/speed.yaml --out $(BENCH_DIR) $(BENCH_FLAGS) || [ $$? -eq 1 ]
	$(PYTHON) experiments/bench/table.py $(BENCH_DIR) --markdown $(BENCH_DIR)/table.md

FUZZ_SECONDS ?= 60
fuzz: setup
	tests/fuzz/run.sh $(FUZZ_SECONDS)

FRESH ?=
FRESH_RUN ?= ./dpctl run experiments/quickstart.yaml
export FRESH_RUN
fresh:
	tests/fresh/run.sh --command "$$FRESH_RUN" $(FRESH)

LOCKING = uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --quiet
GROUPS = setup/docs.txt setup/wheel.txt
lock:
	@command -v uv >/dev/null || { echo "there is no uv: pip install uv" >&2; exit 3; }
	{ echo "# Made from pyproject.toml by: make lock" && \
	$(LOCKING) pyproject.toml --extra dev --no-emit-package ziglang; \
	} >setup/lock.txt.new && mv setup/lock.txt.new setup/lock.txt
	$(MAKE) --always-make $(GROUPS)

# Packages of a group, in the versions of the lock file where that has them too.
$(GROUPS): setup/%.txt:
	{ echo "# Made from pyproject.toml by: make lock" && \
	$(LOCKING) --group pyproject.toml:$* --constraint setup/lock.txt; } >$@.new && mv $@.new $@

.venv/.%: setup/%.txt | setup
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes \
		--only-binary :all: -r $< || \
		{ echo "next: check the network (pip's settings, proxy), then call make again" >&2; exit 3; }
	touch $@

# The libraries that every RDMA or MPI program has of its system are not put into the wheel: the
# programs of the wheel have to have the same ones.
NOT_BUNDLED = libibverbs.so.1 librdmacm.so.1 libmpi.so.40
wheel: export PATH := $(CURDIR)/.venv/bin:$(PATH)
wheel: .venv/.wheel
	rm -rf build/wheel dist
	$(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation \
		--config-settings=build-dir=build-wheel --wheel-dir build/wheel .
	# It holds no module in C: one wheel is good for every Python.
	$(PYTHON) -m wheel tags --remove --python-tag py3 --abi-tag none build/wheel/*.whl
	$(PYTHON) -m auditwheel repair --wheel-dir dist \
		$(NOT_BUNDLED:%=--exclude %) build/wheel/*.whl

docs: .venv/.docs
	rm -rf build/pages
	$(PYTHON) setup/pages.py build/pages
	$(PYTHON) -m datapath.cli.reference build/pages/reference
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet --strict
	@echo build/site/index.html

# The wheel that brings axe-core names a browser's driver too, which is not needed.
look: export PIP_NO_DEPS := 1
look: docs .venv/.look
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		{ echo "there is no browser: apt-get install chromium" >&2; exit 3; }
	rm -rf build/look
	DATAPATH_LOOK=build/look $(PYTHON) -m pytest -q -n 0 tests/report/look.py
	@echo build/look

clean:
	rm -rf build build-san build-fresh
