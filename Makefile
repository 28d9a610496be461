# One door to everything. `make demo` and `make test` do all the set-up a fresh Debian machine needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo
BIN := target/release/isotherm

BENCHES := bench-scan bench-accuracy bench-collapse bench-redis bench-sampling bench-scale bench-sampled bench-events \
	bench-faults bench-frames bench-drain bench-conflict bench-herd bench-damon
.PHONY: help build install demo test lint lint-features fmt fuzz soak loom miri lab lab-quick bench $(BENCHES) setup-build setup-test setup-lab

help:
	@echo "make demo            set up, build, and watch a workload with known hot memory"
	@echo "make test            set up and run every test"
	@echo "make lab             run the tests under stock Debian kernels in QEMU (see lab/README.md)"
	@echo "make lab-quick       one short boot of the oldest of these kernels (about a minute)"
	@echo "make build           set up and build $(BIN)"
	@echo "make install         build and install the program, the C library and its header; PREFIX (/usr/local), DESTDIR"
	@echo "make lint            formatting, clippy and which crate uses which, warnings as errors"
	@echo "make fuzz            any bytes as records of a perf ring, for FUZZ_SECONDS (60)"
	@echo "make soak            random calls on one zone of frames from several threads, for SOAK_SECONDS (600)"
	@echo "make loom            every order in which a few threads can meet at a zone's lock (about half a minute)"
	@echo "make miri            the frames' unit tests, interpreted: undefined behaviour is found (needs a nightly toolchain with miri)"
	@echo "make bench-scan      what reading and clearing cost, next to clear_refs + smaps (about 8 minutes)"
	@echo "make bench-accuracy  precision and recall against the truth (about 9 minutes; --full: 16)"
	@echo "make bench-collapse  hints next to round robin, everything huge, and nothing (about 7 minutes)"
	@echo "make bench-redis     two Redis servers, one with hints (about 9 minutes, 13 GiB)"
	@echo "make bench-sampling  drawing a page in each of up to 200,000 regions, next to a locked ChaCha20 (about 1 minute)"
	@echo "make bench-scale     modelled hosts of up to 5 TB: DAMON's algorithm next to ours (about 3 minutes)"
	@echo "make bench-sampled   a process of 14 GiB, sampled next to whole (about 12 minutes)"
	@echo "make bench-faults    every page fault of a child sampled, next to none (about 1 minute)"
	@echo "make bench-damon     the kernel's DAMON next to ours on one process, in QEMU (about 5 minutes)"
	@echo "make bench-events    a window of 200,000 sampled accesses, next to a list of 26 million regions (about 1 minute, 2 GiB)"
	@echo "make bench-frames    page frames taken and given back, next to allocators there are (about 2 minutes, 1 GiB; builds jemalloc)"
	@echo "make bench-drain     per-CPU housekeeping on two CPUs: at the same instant next to spread, and what a drain costs (about a minute)"
	@echo "make bench-conflict  conflicts in a direct-mapped memory-side cache by how frames are placed, and what placing costs (about a minute)"
	@echo "make bench-herd      who waits for a zone's lock when many CPUs keep house, modelled with holds as measured (half a minute)"
	@echo "make bench           all of them; results into bench/results/"

setup-build:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test

setup-lab:
	@scripts/setup.sh lab

build: setup-build
	$(CARGO) build --release --locked -p isotherm

install: build
	$(CARGO) build --release --locked -p isotherm-c
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh target/release

demo: build
	$(BIN) demo

lint: setup-build
	$(CARGO) fmt --all --check
	@scripts/check-crates.sh
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The program without the simulator: nobody builds it otherwise.
lint-features: setup-build
	$(CARGO) clippy -p isotherm --bins --no-default-features --locked -- -D warnings

fmt:
	$(CARGO) fmt --all

test: setup-test lint
	@scripts/test.sh

fuzz: setup-build
	@scripts/fuzz.sh $(or $(FUZZ_TARGET),perf_records) $(or $(FUZZ_SECONDS),60)

soak: setup-build
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) $(CARGO) test --release --locked -p isotherm-frames --test soak -- --nocapture

# In directories of their own, or all that these flags concern would be built anew each time.
loom: setup-build
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --release --locked -p isotherm-frames --test loom

miri: setup-build
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
		MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=target/miri $(CARGO) +nightly miri test --locked -p isotherm-frames \
			--lib; \
	else echo "skipped: needs a nightly toolchain with miri (rustup toolchain install nightly --component miri)"; fi

lab: setup-lab
	@lab/run.sh

lab-quick: setup-lab
	@lab/run.sh --quick

# Each bench is the program of its name. What it needs before that stands below: the program under test, or a compiler only.
$(filter-out bench-damon,$(BENCHES)):
	$(CARGO) run --release --locked -q -p isotherm-bench$(if $(features), --features $(features)) --bin $@

bench-redis: setup-test
bench-scan bench-accuracy bench-collapse bench-redis bench-sampling bench-scale bench-sampled bench-events bench-faults: build
bench-frames bench-drain bench-conflict bench-herd: setup-build
features :=
# The allocators that it compares with.
bench-frames: private features := peers

bench-damon: setup-lab
	@lab/run.sh --bench

bench: $(BENCHES)
