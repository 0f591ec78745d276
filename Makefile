# Every target sets up what it needs in .venv, once; a second run does only what it is for.
# `make PYTHON=python3.12 test` takes that interpreter (3.11, 3.12 or 3.13) and keeps its environment apart,
# in .venv-3.12. WORKERS: the processes of `make test`.

FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
VERSION := import sys; print("%d.%d" % sys.version_info[:2])
VENV := .venv
ifeq ($(origin PYTHON),command line)
VENV := .venv-$(shell "$(PYTHON)" -c '$(VERSION)' 2>/dev/null)
endif
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(FITS)' 2>/dev/null && { echo $$p; break; }; done)
WORKERS ?= 2
# Of tests that ask for more threads, those that wait do not keep a processor busy.
THREADS := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: demo test test-all test-gpu test-triton test-sanitized test-sizes fuzz fuzz-python lint format bench conformance exam clean

demo: $(READY)
	$(RUN) -m anyshape demo

test: $(READY)
	$(THREADS) $(RUN) -m pytest -q -n $(WORKERS) --dist worksteal --durations=10

test-all: $(READY)
	$(THREADS) $(RUN) -m pytest -q -n $(WORKERS) --dist worksteal --durations=10 -m "not gpu"

	$(MAKE) test-sanitized
	$(MAKE) test-sizes

# On a machine with an NVIDIA GPU: the kernel suite and the programs of tests/gpu.
test-gpu: $(READY)
	$(RUN) -m pytest -q -m gpu tests/gpu tests/moe tests/attention

# Without a GPU: every kernel in Triton's interpreter, and compiled in every way for sm_80, sm_90 and sm_100.
test-triton: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n $(WORKERS) --dist worksteal -m "not gpu" \
		tests/codegen/test_triton.py tests/codegen/test_triton_binaries.py tests/codegen/test_triton_schedules.py \
		tests/attention/test_triton.py tests/moe/test_kernels_triton.py

# Generated C under gcc's address and undefined-behaviour sanitizers.
SANITIZED := tests/bounds tests/fuzz tests/ops tests/codegen tests/regions tests/schedule
test-sanitized: $(READY)
	OMP_NUM_THREADS=1 $(RUN) tests/sanitized/run.py -m pytest -q -n $(WORKERS) --dist worksteal \
		-p no:faulthandler -o timeout=1800 $(SANITIZED)

# Programs whose sizes data decides, those sizes kept in memory where nothing needs them on the host.
SIZED := tests/capture/numbers tests/capture/test_symbolic.py tests/capture/test_users_programs.py tests/test_inside.py
test-sizes: $(READY)
	ANYSHAPE_SIZES=device ANYSHAPE_VERIFY_PROGRAMS=1 OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n $(WORKERS) \
		--dist worksteal $(SIZED)

# PROGRAMS random programs from SEED on, every way to compile them; stopped, it goes on where it was.
PROGRAMS ?= 100000
SEED ?= 0
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -W ignore -m tests.fuzz $(PROGRAMS) --seed $(SEED) --jobs $(WORKERS)

# The same for programs of Python beside CPython (docs/python.md).
fuzz-python: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -W ignore -m tests.fuzz_python $(PROGRAMS) --seed $(SEED) --jobs $(WORKERS)

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/mypy

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(READY)
	$(RUN) -m benchmarks

conformance: $(READY)
	$(RUN) -m conformance

# CPython's own tests, compiled and natively (docs/python.md); stopped, it goes on at the next module.
exam: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -W ignore -m conformance.python --jobs $(WORKERS)

clean:
	rm -rf .venv .venv-* build *.egg-info

$(READY): pyproject.toml
	@"$(PYTHON)" -c '$(FITS)' 2>/dev/null || { echo "anyshape needs Python 3.11, 3.12 or 3.13 with venv: make PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(RUN) || "$(PYTHON)" -m venv $(VENV)
	$(RUN) -m pip install --quiet -e ".[test]"
	touch $@
