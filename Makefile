# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# The developer's door.  Everything else is ./dpctl.

PYTHON := .venv/bin/python
C_FILES = $(shell find datapath tests tools -name '*.[ch]')

.PHONY: help setup test soak lint format bench fuzz fresh lock clean

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

lock:
	{ echo "# Made from pyproject.toml by: make lock" && \
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate --quiet; \
	} >setup/lock.txt.new && mv setup/lock.txt.new setup/lock.txt

clean:
	rm -rf build build-san build-fresh
