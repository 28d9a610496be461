# Entry point for every task. `make demo` and `make test` do all the set-up that a fresh Debian machine needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo
BIN := target/release/isotherm

BENCHES := bench-first bench-busy bench-scan bench-accuracy bench-collapse bench-split bench-cold bench-cold-redis bench-advise bench-tier bench-redis bench-record bench-sampling bench-scale bench-sampled bench-events \
	bench-faults bench-serve bench-frames bench-drain bench-conflict bench-herd bench-damon
.PHONY: dist dist-check setup-dist setup-packages lint-kube image image-check manifests setup-kube setup-image
.PHONY: help build build-serve build-ship build-kube bench-ship install demo test lint lint-code lint-features docs benchmarks-page fmt fuzz soak loom miri faults soak-watch soak-serve lab lab-quick lab-packages lab-image lab-programs lab-roots web test-web test-fleet lint-fleet fleet-demo fleet-model bench bench-fleet $(BENCHES) setup-build setup-test setup-faults setup-lint setup-docs setup-lab setup-web setup-fleet

help:
	@echo "make demo            set up, build, and watch a workload with known hot memory"
	@echo "make test            set up and run every test"
	@echo "make lab             run the tests under stock Debian kernels in QEMU, then bench-damon (see lab/README.md)"
	@echo "make dist            packages for Debian and RPM, a tarball, licences and checksums, into target/dist (about 10 minutes)"
	@echo "make dist-check      lintian and rpm on what make dist has built; REBUILD=1: builds it again in another folder, and compares"
	@echo "make lab-image       the containers of the manifest, of the image of make image, under crun in that guest (2 minutes)"
	@echo "make lab-packages    install, upgrade, restart and purge the package of target/dist in a Debian 12 guest with systemd (about 5 minutes)"
	@echo "make lab-programs    page out what redis, memcached, PostgreSQL, a JVM and Python do not use, in that guest with swap (about 15 minutes)"
	@echo "make lab-roots       run its program in root trees of Debian 11, 12 and 13 (about 1 minute; the first time 4)"
	@echo "make lab-quick       one short boot of the oldest of these kernels (about 1 minute)"
	@echo "make build           set up and build $(BIN)"
	@echo "make build-serve     set up and build target/release/isotherm-serve, the server that isotherm serve starts"
	@echo "make build-ship      set up and build target/release/isotherm-ship, which sends rollups to a store; SHIP_FEATURES=aws,gcp,azure: beyond a folder"
	@echo "make build-kube      set up and build target/release/isotherm-kube, which gives cgroups of annotated pods to schemes"
	@echo "make image           a container image of the programs that were built, by buildah (1 minute; IMAGE=name:tag)"
	@echo "make image-check     runs the programs of that image, as its user and with the capabilities of the chart"
	@echo "make lint-kube       the Helm chart and the plain manifests against schemas and rules (builds helm and kubeconform: 3 minutes, then 5 s)"
	@echo "make manifests       deploy/manifests, rendered from the Helm chart"
	@echo "make install         install what make build has built: the program, the C library and its header; PREFIX (/usr/local), DESTDIR"
	@echo "make lint            formatting, clippy and dependencies between crates; warnings are errors"
	@echo "make docs            the book, into target/book (open target/book/index.html)"
	@echo "make web             the page of isotherm serve, into web/dist, which is committed (needs Node 20)"
	@echo "make test-web        tests of that page in Chromium (about 2 minutes; WEB_TESTS=optional: Chromium may be missing)"
	@echo "make test-fleet      tests and lints of fleet/: queries, compaction, DuckDB and Spark beside each other, S3 (about 8 minutes; needs Java)"
	@echo "make fleet-demo      a modelled fleet of 200 hosts and 7 days, six reports of it, and a page of charts (about 5 minutes)"
	@echo "make fuzz            random bytes as input files and records, for FUZZ_SECONDS (60) each; FUZZ_TARGET selects one"
	@echo "make faults          plays faults on real processes and prints which held (about 10 minutes; FAULTS=word selects)"
	@echo "make soak-watch      isotherm run --all over processes that come and go, for SOAK_SECONDS (3600)"
	@echo "make soak-serve      a Prometheus scrapes isotherm serve beside a busy Redis, for SCRAPE_SECONDS (600)"
	@echo "make soak            random calls on one zone of frames from several threads, for SOAK_SECONDS (600)"
	@echo "make loom            every order in which a few threads can contend for a zone lock (about 30 s)"
	@echo "make miri            unit tests of the frame allocator in an interpreter that finds undefined behaviour (needs a nightly toolchain with miri)"
	@echo "make bench-first     how soon a picture is good, exact, and follows a change, next to DAMON's algorithm and smaps (about an hour)"
	@echo "make bench-busy      a key-value store on every CPU: unmeasured memory, working set, price, collapses (about 17 minutes)"
	@echo "make bench-scan      cost of reading and clearing, compared with clear_refs + smaps (about 8 minutes)"
	@echo "make bench-accuracy  precision and recall, compared with the truth (about 9 minutes; --full: 16)"
	@echo "make bench-collapse  collapse by hints, compared with round robin, everything huge, and nothing (about 7 minutes)"
	@echo "make bench-split     what is unused behind huge pages, by probes, compared with the truth (about 10 minutes)"
	@echo "make bench-cold      cold memory paged out by a scheme, by memory.reclaim and by DAMON, in QEMU (about 40 minutes)"
	@echo "make bench-cold-redis  a Redis whose cold memory is paged out: memory, refaults, latency, in QEMU (about 15 minutes)"
	@echo "make bench-advise    a service with its memory limited to what was advised, and to less, in QEMU (about 20 minutes)"
	@echo "make bench-tier      hot pages in fast memory: schemes that promote and demote, and NUMA balancing, in QEMU (about 15 minutes)"
	@echo "make bench-redis     two Redis servers, one of them collapsed by hints (about 9 minutes, 13 GiB)"
	@echo "make bench-record    a busy Redis recorded for a minute: CPU of the recorder, and what is unmeasured (about 8 minutes)"
	@echo "make bench-sampling  random choice of a page in each of up to 200,000 regions, compared with a locked ChaCha20 (about 1 minute)"
	@echo "make bench-scale     modelled hosts of up to 5 TB: DAMON's algorithm compared with ours (about 3 minutes)"
	@echo "make bench-sampled   a process of 14 GiB: sampled, compared with whole (about 12 minutes)"
	@echo "make bench-faults    every page fault of a child sampled, compared with none (about 1 minute)"
	@echo "make bench-serve     isotherm serve: scrapes, its page with a day of snapshots, and the target next to a clear_refs exporter (about 15 minutes, 9 GiB)"
	@echo "make bench-damon     the kernel's DAMON compared with ours on one process, in QEMU (about 5 minutes)"
	@echo "make bench-events    a window of 200,000 sampled accesses, compared with a list of 26 million regions (about 1 minute, 2 GiB)"
	@echo "make bench-frames    allocation and release of page frames, compared with other allocators (about 2 minutes, 1 GiB; builds jemalloc)"
	@echo "make bench-drain     periodic drain of pcp lists on two CPUs: at the same instant or spread, and the cost of a drain (about 1 minute)"
	@echo "make bench-conflict  conflicts in a direct-mapped memory-side cache by frame placement, and the cost of placement (about 1 minute)"
	@echo "make bench-herd      model of zone-lock contention when many CPUs drain their pcp lists, with measured hold times (about 30 s)"
	@echo "make bench-ship      a modelled day of one host through the rollup, the spool and a local store: CPU time, puts, bytes (about 1 minute)"
	@echo "make bench-fleet     queries over 200 modelled hosts and 7 days, compaction, DuckDB beside Spark (about 20 minutes, 10 GB of disk)"
	@echo "make bench           all benchmarks; results go to bench/results/"

setup-build:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test

setup-faults:
	@scripts/setup.sh faults

setup-lint:
	@scripts/setup.sh lint

setup-docs:
	@scripts/setup.sh docs

setup-lab:
	@scripts/setup.sh lab

setup-kube:
	@scripts/setup.sh kube

setup-image:
	@scripts/setup.sh image

# The server of `isotherm serve`. `make demo` needs none, and does not compile an HTTP stack.
build-serve: setup-build
	$(CARGO) build --release --locked -p isotherm-serve

# Sends rollups to an object store. Not part of `make build`, for the same reason.
build-ship: setup-build
	$(CARGO) build --release --locked -p isotherm-ship $(if $(SHIP_FEATURES),--features $(SHIP_FEATURES))

# Reads annotations of pods. Not part of `make build`: few hosts are nodes of Kubernetes.
build-kube: setup-build
	$(CARGO) build --release --locked -p isotherm-kube

# Of what is built: `make build build-serve build-ship build-kube image`.
image: setup-image
	@deploy/image/build.sh $(IMAGE)

image-check: setup-image
	@deploy/image/check.sh $(IMAGE)

lint-kube: setup-kube
	@scripts/lint-kube.sh

manifests: setup-kube
	@scripts/render-manifests.sh

build: setup-build
	$(CARGO) build --release --locked -p isotherm -p isotherm-c

# Copies what `make build` has built: as root, cargo need not be on the path.
install:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh target/release

demo: build
	$(BIN) demo

# What a change to the code can break. `make lint` checks dependencies, documentation and workflows too. Not part of `make test`: on a
# new machine clippy checks all dependencies once more, which takes two minutes. CI runs both.
lint-code: setup-build
	$(CARGO) fmt --all --check
	@scripts/check-crates.sh
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

lint: lint-code setup-lint
	target/tools/bin/cargo-deny --all-features --log-level error check bans licenses sources
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --document-private-items --locked -q
	@if command -v go >/dev/null; then go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7; \
	else echo "skipped: needs go (actionlint, for .github/workflows)"; fi

# The program without the simulator. No other target builds it.
lint-features: setup-build
	$(CARGO) clippy -p isotherm --bins --no-default-features --locked -- -D warnings

fmt:
	$(CARGO) fmt --all

test: setup-test
	@scripts/test.sh

docs: setup-docs
	target/tools/bin/mdbook build docs

benchmarks-page: setup-build
	$(CARGO) run --locked -q -p isotherm-bench --bin benchmarks-page

fuzz: setup-build
	@scripts/fuzz.sh $(or $(FUZZ_TARGET),all) $(or $(FUZZ_SECONDS),60)

faults: setup-faults
	$(CARGO) test --release --locked -p isotherm --test faults -- $(FAULTS)

soak-watch: setup-build
	SOAK_SECONDS=$(or $(SOAK_SECONDS),3600) $(CARGO) test --release --locked -p isotherm --test soak_watch -- --nocapture

soak-serve: setup-test build-serve
	SCRAPE_SECONDS=$(or $(SCRAPE_SECONDS),600) $(CARGO) test --release --locked -p isotherm --test scraped -- --nocapture

soak: setup-build
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) $(CARGO) test --release --locked -p isotherm-frames --test soak -- --nocapture

# Separate target directories. In the common one, these flags would cause a rebuild each time.
loom: setup-build
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --release --locked -p isotherm-frames --test loom

miri: setup-build
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
		MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=target/miri $(CARGO) +nightly miri test --locked -p isotherm-frames \
			--lib; \
	else echo "skipped: needs a nightly toolchain with miri (rustup toolchain install nightly --component miri)"; fi

setup-web:
	@scripts/setup.sh web
	cd web && npm ci --ignore-scripts --no-audit --no-fund

web: setup-web
	cd web && npm run check && npm run build

test-web: setup-web
	cd web && npm run check && npm test

FLEET := target/fleet-venv/bin

setup-fleet:
	@scripts/setup.sh fleet

lint-fleet: setup-fleet
	cd fleet && ../$(FLEET)/ruff format --check . && ../$(FLEET)/ruff check . && ../$(FLEET)/mypy isotherm_fleet spark bench

# The shipper's tests against a server of S3's protocol are here because the server is a Python package.
test-fleet: lint-fleet fleet-model
	cd fleet && ../$(FLEET)/python -m pytest
	$(CARGO) test --locked -p isotherm-ship --features aws --test s3

# The modelled fleet is written by a program of this tree, and kept for the next run.
fleet-model: setup-build
	$(CARGO) build --release --locked -p isotherm-fleet-model

fleet-demo: setup-fleet fleet-model
	$(FLEET)/python fleet/bench/demo.py

# With the programs that make the modelled fleet and the figures of uploads.
bench-fleet: setup-fleet fleet-model
	$(CARGO) build --release --locked -p isotherm-ship --example day
	$(FLEET)/python fleet/bench/bench_fleet.py

setup-dist:
	@scripts/setup.sh dist

dist: setup-build setup-dist
	@scripts/dist.sh

# What was built is what Debian expects of a package, and the same in another folder.
dist-check: setup-dist
	@scripts/dist-check.sh

# The comparison with the kernel's DAMON asserts nothing: its figures are read.
lab: setup-lab
	@lab/run.sh
	@lab/run.sh --bench bench-damon

lab-quick: setup-lab
	@lab/run.sh --quick

setup-packages:
	@scripts/setup.sh packages

lab-packages: setup-packages
	@lab/packages.sh

lab-image: setup-packages setup-image
	@lab/image.sh

lab-programs: setup-packages build
	@lab/programs.sh

lab-roots: setup-packages
	@lab/roots.sh

# These change settings of the kernel, and run in a guest of the lab, which builds them.
IN_LAB := bench-damon bench-cold bench-cold-redis bench-advise bench-tier
# Each of the others runs the program of the same name. Its prerequisites are below: the program under test, or only a compiler.
$(filter-out $(IN_LAB),$(BENCHES)):
	$(CARGO) run --release --locked -q -p isotherm-bench$(if $(features), --features $(features)) --bin $@

bench-redis bench-record: setup-test
bench-first bench-busy bench-scan bench-accuracy bench-collapse bench-split bench-redis bench-record bench-sampling bench-scale bench-sampled bench-events bench-faults: build
bench-serve: build build-serve
bench-frames bench-drain bench-conflict bench-herd: setup-build
features :=
# The allocators that it compares with.
bench-frames: private features := peers

$(IN_LAB): setup-lab
	@lab/run.sh --bench $@

# An example of its crate: the benches do without the clients of stores.
bench-ship: setup-build
	$(CARGO) run --release --locked -q -p isotherm-ship --example day

bench: $(BENCHES) bench-ship bench-fleet
