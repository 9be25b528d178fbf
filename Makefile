# CARGOFLAGS reaches every cargo call, for example `make test CARGOFLAGS=--locked`.
CARGO ?= cargo
CARGOFLAGS ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
export SABUL := $(TARGET_DIR)/release/sabul
# `make TARGET SABUL=PROGRAM` uses a program that is built already.
PROGRAM := $(if $(filter command,$(firstword $(origin SABUL))),,build)
# Tests of whole copies use the program of the tests.
TESTED := $(if $(PROGRAM),$(TARGET_DIR)/debug/sabul,$(SABUL))
export QUINN_PEER := $(TARGET_DIR)/quinn-peer/release/quinn-peer
QUINN_FLAGS := --manifest-path benches/quinn-peer/Cargo.toml
FUZZ_FLAGS := --manifest-path fuzz/guided/Cargo.toml
INSTRUCTIONS_FLAGS := --manifest-path benches/instructions/Cargo.toml
SETTING := CARGO="$(CARGO)" CARGOFLAGS="$(CARGOFLAGS)" CARGO_TARGET_DIR="$(TARGET_DIR)"
NAMESPACES := --features sabul-emu/namespaces,sabul-program/namespaces
ROUNDS ?= 5
SEEDS ?= 20000
RUNS ?= 4
SECONDS ?= 10
VERIFY ?= --no-verify
MUTANTS ?= 300
MAY_SKIP ?= 1

.DEFAULT_GOAL := help
.PHONY: help needs build install dist publish-check demo test format lint unit interrupted synced replicated killed queued site receipts joins doc test-lab lint-lab \
	unit-lab scripts-lab \
	cuts carriers sweep arms picture bench bench-sim bench-router bench-smoke instructions instructions-baseline reproduce tidy fuzz \
	fuzz-keep

help: ## print the list of targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-21s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

needs: ## install missing build tools, if permitted (part of demo and test)
	@packaging/needs.sh

build: ## build the release program, target/release/sabul
	$(CARGO) build $(CARGOFLAGS) --release -p sabul-program

install: build ## install program, manual pages and completions below PREFIX=/usr/local; DESTDIR= for packages
	packaging/install.sh $(TARGET_DIR)/release/sabul $(or $(PREFIX),/usr/local) $(DESTDIR)

dist: ## build the static program as tarball and .deb in OUT=dist, and test it in an empty root; TARGETS=x86_64-unknown-linux-musl
	$(SETTING) packaging/dist.sh $(or $(OUT),dist) $(or $(TARGETS),x86_64-unknown-linux-musl)
	packaging/try.sh $(or $(OUT),dist)/*$(shell uname -m)*.tar.gz $(or $(OUT),dist)/*_$$(dpkg --print-architecture).deb

publish-check: ## check that every crate can be published; VERIFY= also builds each from its package (slow)
	$(CARGO) publish $(CARGOFLAGS) --workspace --dry-run --allow-dirty $(VERIFY)

demo: needs build ## send one file by TCP and by sabul over an emulated path, with and without loss; page in target/demo.html
	$(SABUL) demo --page $(TARGET_DIR)/demo.html

test: needs format lint unit interrupted synced replicated killed queued receipts python-tests doc ## check format, lints and documentation, run every test without root

format:
	$(CARGO) fmt --all --check
	$(CARGO) fmt $(QUINN_FLAGS) --check
	$(CARGO) fmt $(FUZZ_FLAGS) --check
	$(CARGO) fmt $(INSTRUCTIONS_FLAGS) --check
	$(CARGO) fmt --manifest-path sql/Cargo.toml --check

# FEATURES adds options with Cargo features; .ci/run uses FEATURES to check, document and build all once.
lint:
	$(CARGO) clippy $(CARGOFLAGS) --workspace --all-targets $(FEATURES) -- -D warnings

# Many tests wait for timers and other processes, so twice as many run as there are processors.
unit: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
unit:
	$(CARGO) test $(CARGOFLAGS) --workspace --no-fail-fast $(FEATURES)

.PHONY: tested
tested:
ifneq ($(PROGRAM),)
	$(CARGO) build $(CARGOFLAGS) -p sabul-program
endif

interrupted: tested ## kill either end of RUNS=4 copies at random times and resume the copies (part of test)
	SABUL=$(TESTED) tests/resume.sh $(RUNS)

replicated: tested ## kill both ends of replicate while files change at every place, REPLICA_RUNS=2; cut paths, PARTITION_RUNS=1, as root (part of test)
	SABUL=$(TESTED) tests/replicas.py $(or $(REPLICA_RUNS),2)
	SABUL=$(TESTED) tests/partitions.py $(or $(PARTITION_RUNS),1)

synced: tested ## compare sync with rsync on SYNC_SEEDS=4 drawn trees; skipped without rsync (part of test)
	SABUL=$(TESTED) tests/sync.py $(or $(SYNC_SEEDS),4)
	SABUL=$(TESTED) tests/options.py $(or $(SYNC_SEEDS),4)

killed: tested ## kill either end of sync and apply KILLS=2 times each and repeat them; skipped without rsync (part of test)
	SABUL=$(TESTED) tests/kills.py $(or $(KILLS),2)

queued: tested ## run JOBS=20 queued copies and kill the runner KILLS=3 times; no job is lost or done twice (part of test)
	SABUL=$(TESTED) tests/queue.py $(or $(JOBS),20) $(or $(KILLS),3)

site: tested ## run JOBS=40 copies of a queue in PostgreSQL, kill its workers and the database; two servers of one name; skipped without postgresql
	SABUL=$(TESTED) tests/site.py $(or $(JOBS),40) $(or $(KILLS),4) $(or $(RESTARTS),3)
	SABUL=$(TESTED) tests/one_name.py

joins: tested ## compare JOINS=40 drawn joins with DuckDB, some with a killed source; needs python3 and a package registry
	SABUL=$(TESTED) tests/joins.py $(or $(JOINS),40)

receipts: tested ## check receipts with sha256sum, b3sum and ssh-keygen; skipped without them (part of test)
	SABUL=$(TESTED) tests/receipts.py

.PHONY: python python-tests python-build
python: $(PROGRAM) ## build the Python wheel and test the installed wheel; needs python3 and a package registry
	CARGO_TARGET_DIR="$(abspath $(TARGET_DIR))" python/test.sh $(SABUL)

python-tests: tested ## the same without full optimisation; skipped without venv of Python or a package registry (part of test)
	CARGO_TARGET_DIR="$(abspath $(TARGET_DIR))" PROFILE=dev OUT=$(TARGET_DIR)/wheel MAY_SKIP=$(MAY_SKIP) python/test.sh $(TESTED)

python-build:
	$(CARGO) build $(CARGOFLAGS) --manifest-path python/Cargo.toml --target-dir $(TARGET_DIR)

.PHONY: test-sql
test-sql: tested ## build and test the tables for DataFusion in sql, a workspace that takes minutes to build
	SABUL=$(abspath $(TESTED)) $(CARGO) test $(CARGOFLAGS) --manifest-path sql/Cargo.toml --target-dir $(TARGET_DIR)/sql

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CARGOFLAGS) --workspace --no-deps $(FEATURES)

tidy: ## check only the repository's own rules (part of test)
	$(CARGO) run $(CARGOFLAGS) -q -p xtask -- tidy

test-lab: lint-lab unit-lab scripts-lab ## run all tests that create namespaces or mounts; needs root, iproute2 and nftables

lint-lab:
	$(CARGO) clippy $(CARGOFLAGS) -p sabul-emu -p sabul-program --all-targets $(NAMESPACES) -- -D warnings

unit-lab:
	$(CARGO) test $(CARGOFLAGS) -p sabul-emu -p sabul-program $(NAMESPACES)

# The scripts mostly wait for timers, so three groups of about equal time run at once. lab.sh measures rates at first.
scripts-lab: $(PROGRAM)
	$(MAKE) --no-print-directory -j 3 --output-sync=recurse scripts-lab-1 scripts-lab-2 scripts-lab-3

.PHONY: scripts-lab-1 scripts-lab-2 scripts-lab-3
scripts-lab-1:
	tests/lab.sh
	tests/addresses.sh
	tests/failing-disk.sh
	tests/others.sh
scripts-lab-2:
	tests/nat.sh
	tests/port_mapping.sh
	tests/router.sh
	tests/throttle.sh
scripts-lab-3:
	tests/queue_power.py
	tests/netns.sh
	tests/ssh.sh
	CUT_S=3 tests/cut_reads.sh

cuts: build ## interrupt copies between namespaces, KILLS=200 CUTS=50; needs root and iproute2; half an hour
	tests/cuts.sh $(or $(KILLS),200) $(or $(CUTS),50)
	tests/cut_reads.sh

carriers: build ## end single carriers of COPIES=200 copies between namespaces; needs root, iproute2 and nftables
	tests/carriers.py $(or $(COPIES),200)

sweep: ## simulate SEEDS=20000 transfers over random paths, kill and resume 200 copies, run sanitize and mutants
	SABUL_SWARM_SEEDS=$(SEEDS) $(CARGO) test $(CARGOFLAGS) --release -p sabul-sim --test it channel_swarm::
	SABUL_SWARM_SEEDS=$(SEEDS) $(CARGO) test $(CARGOFLAGS) --release -p sabul-sim --test it world_swarm::
	SABUL_WORLD_SEEDS=$(SEEDS) SABUL_SYNC_SEEDS=$(SEEDS) SABUL_REPLICATE_SEEDS=$(SEEDS) \
		$(CARGO) test $(CARGOFLAGS) --release -p sabul --lib world::
	$(MAKE) interrupted RUNS=200
	$(MAKE) killed KILLS=100
	$(MAKE) queued JOBS=1000 KILLS=50
	SABUL=$(TESTED) tests/queue_power.py 400 20
	$(MAKE) site JOBS=1000 KILLS=40 RESTARTS=15
	$(MAKE) sanitize mutants

sanitize: ## test the crate with unsafe code under AddressSanitizer; needs a nightly Rust (part of sweep)
	$(SETTING) tests/sanitize.sh

mutants: ## check that tests detect MUTANTS=300 small changes in each area: protocol, sealing, sandbox, journal and memory, SEED=1 (part of sweep)
	$(SETTING) tests/mutants.py $(MUTANTS) $(or $(SEED),1)

reproduce: build ## simulate the papers' tables and figures; fail if a verdict changed; OUT=results
	$(SABUL) reproduce run all --out $(or $(OUT),results)

picture: ## draw the picture of the laboratory tour: goodput over loss, and CUBIC beside each controller
	$(CARGO) run $(CARGOFLAGS) --release -p sabul-study --example picture -- docs/pictures/loss-and-tcp.svg

arms: build ## compare ten scenarios in simulator and lab; a quarter of an hour; OUT=results
	$(SABUL) lab compare scenarios/arms/*.toml --out $(or $(OUT),results)

bench-sim: ## measure the speed of the simulator: wall time, and instructions if valgrind is installed
	$(CARGO) build $(CARGOFLAGS) --release -p sabul-sim --example world_speed
	benches/simulator.sh $(TARGET_DIR)/release/examples/world_speed $(ROUNDS)

bench-router: ## measure packets per second of `sabul router` on one core, by algorithm; SECONDS=10
	$(CARGO) build $(CARGOFLAGS) --release -p sabul-router --example forwarding_speed
	for algorithm in none jetmax rcp piqi-rcp xcp emkc maxnet; do \
		$(TARGET_DIR)/release/examples/forwarding_speed $$algorithm $(SECONDS) || exit 1; \
	done

bench-smoke: $(PROGRAM) ## check that the benchmarks run, a second each; the numbers are meaningless
	$(CARGO) build $(CARGOFLAGS) --release -p sabul-sim --example world_speed
	$(TARGET_DIR)/release/examples/world_speed one 1
	$(TARGET_DIR)/release/examples/world_speed many 1
	QUINN_PEER= benches/loopback.sh 1 1

instructions: $(TARGET_DIR)/release/instructions ## fail if the core executes 1 % more instructions than the baseline; needs valgrind
	benches/instructions.sh $<

instructions-baseline: $(TARGET_DIR)/release/instructions ## rewrite the baseline with the present instruction counts
	benches/instructions.sh $< --update

.PHONY: $(TARGET_DIR)/release/instructions
$(TARGET_DIR)/release/instructions:
	$(CARGO) build $(CARGOFLAGS) --release $(INSTRUCTIONS_FLAGS) --target-dir $(TARGET_DIR)

bench: build ## compare sabul perf with quinn on loopback; ROUNDS=5 SECONDS=10
	$(CARGO) test $(CARGOFLAGS) -q --release $(QUINN_FLAGS) --target-dir $(TARGET_DIR)/quinn-peer
	$(CARGO) build $(CARGOFLAGS) --release $(QUINN_FLAGS) --target-dir $(TARGET_DIR)/quinn-peer
	benches/loopback.sh $(ROUNDS) $(SECONDS)

fuzz: SECONDS = 60
fuzz: ## send hostile input to every parser and state machine, guided by coverage; SECONDS=60 each, SEED=...
	$(SETTING) fuzz/run.sh $(SECONDS) $(or $(SEED),$(shell date +%s)) $(TARGETS)

fuzz-keep: ## write a small set of inputs of make fuzz with the same coverage to fuzz/found
	$(SETTING) fuzz/keep.sh
