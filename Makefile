# nitro: build, install, test, demo. `make help` lists the targets.
SHELL      := /bin/bash
PG_CONFIG  ?= $(shell ci/pg.sh system)
PROFILE    ?= release
TARGET     := $(or $(CARGO_TARGET_DIR),target)

PG_CONFIG_PATH = $(shell command -v $(PG_CONFIG) || echo $(PG_CONFIG))
MAJOR      = $(shell $(PG_CONFIG) --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
VERSION   := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" extension/nitro.control)
LIBDIR     = $(DESTDIR)$(shell $(PG_CONFIG) --pkglibdir)
EXTDIR     = $(DESTDIR)$(shell $(PG_CONFIG) --sharedir)/extension
LIBRARY    = $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/libnitro.so
SCRIPT     = $(TARGET)/nitro--$(VERSION).sql
UPDATES    = $(RELEASED:%=$(TARGET)/nitro--%--$(VERSION).sql)
# Says for which server the library in $(TARGET) was built.
BUILT      = $(TARGET)/nitro.$(PROFILE).built
# The install script, and those that update a released version. They are made of the same parts: what an update replaces,
# an installation creates. A released script is not made anew: docs/releases.md.
RELEASED      = 0.1.0 0.2.0
SCRIPT_PARTS  = $(patsubst %,extension/%.sql,am views opclasses arrays elements convert)
UPDATE_PARTS  = $(patsubst %,extension/%.sql,views opclasses arrays convert update_end)

CARGO      = PGRX_PG_CONFIG_PATH=$(PG_CONFIG_PATH) cargo
# The bindings ask for Rust 1.96 and are content with 1.95; cargo has no other way to be told.
FEATURES   = --ignore-rust-version --no-default-features --features pg$(MAJOR)
SUDO       = $(if $(DESTDIR),,$(shell [ -w "$(LIBDIR)" ] || echo sudo))

.PHONY: build install uninstall installcheck deb demo demo-replicas test test-all mutants check-core bench bench-quick bench-images bench-memory bench-check check fmt docs clean help

build: scripts    ## build for the server of $PG_CONFIG (default: the one on PATH)
	@[ -n "$(MAJOR)" ] || { echo "no PostgreSQL server with headers found: run ci/deps.sh or set PG_CONFIG"; exit 1; }
	$(CARGO) build --profile $(PROFILE) $(FEATURES)
	@echo "$(VERSION) $(MAJOR) $(PROFILE)" > $(BUILT)

.PHONY: scripts
scripts:          ## the install script and the update scripts
	@mkdir -p $(TARGET)
	@cat $(SCRIPT_PARTS) | sed 's/^CREATE OR REPLACE /CREATE /' > $(SCRIPT)
	@for v in $(RELEASED); do \
	    cat extension/update_begin.sql extension/from-$$v.sql $(UPDATE_PARTS) > $(TARGET)/nitro--$$v--$(VERSION).sql; done

# Before a build of minutes: a server must be found, and its folders be writable, perhaps by sudo.
.PHONY: installable
installable:
	@[ -n "$(MAJOR)" ] || { echo "no PostgreSQL server with headers found: run ci/deps.sh or set PG_CONFIG"; exit 1; }
	@[ -z "$(SUDO)" ] || command -v sudo > /dev/null || { \
	    echo "cannot write to $(LIBDIR), and there is no sudo: run \"make build\" as you are and"; \
	    echo "then \"make install\" as root, or \"make install DESTDIR=...\" to install below another folder"; exit 1; }

# Root may have no cargo: the install then copies the library that was built for this server.
$(BUILT):
	@echo "there is no cargo here: run \"make build\" first, as the user who has it"; exit 1

install: installable $(if $(shell command -v cargo),build,$(BUILT)) ## build and install into the server of $PG_CONFIG (15 to 19); DESTDIR=
	@case "$$(cat $(BUILT))" in "$(VERSION) $(MAJOR) "*) ;; *) echo "the library in $(TARGET) is not for this server: run \"make build\" first"; exit 1 ;; esac
	$(SUDO) install -D -m 755 $(LIBRARY) $(LIBDIR)/nitro.so.new
	@# Renamed into place: a running server keeps the library it has mapped.
	$(SUDO) mv -f $(LIBDIR)/nitro.so.new $(LIBDIR)/nitro.so
	$(SUDO) install -d $(EXTDIR)
	$(SUDO) install -m 644 extension/nitro.control $(SCRIPT) $(UPDATES) $(EXTDIR)

uninstall: installable ## remove what "make install" installed
	$(SUDO) rm -f $(LIBDIR)/nitro.so $(EXTDIR)/nitro.control $(addprefix $(EXTDIR)/,$(notdir $(SCRIPT) $(UPDATES)))

installcheck:     ## a few tests against the running, preloaded server that psql reaches by PGHOST, PGPORT, ...
	ci/installcheck.sh $(PG_CONFIG_PATH)

deb:              ## Debian packages for the server of $PG_CONFIG, in target/deb
	@ci/deb.sh $(PG_CONFIG_PATH)

demo:             ## throwaway server, 1M rows with ten indexes, nitro beside btree and GIN, kill -9 (VERBOSE=1)
	@ci/deps.sh
	@bench/demo/demo.sh

demo-replicas:    ## a primary and two index nodes that share indexes; one is killed and comes back
	@ci/deps.sh
	@bench/demo/replicas.sh

test:             ## does it work here? ten minutes: style, engine, regression, isolation, a crash
	@ci/deps.sh
	@ci/quick.sh

test-all:         ## every test there is, on PostgreSQL 18 with assertions too: 45 minutes (LONG=1: longer)
	@ci/deps.sh
	@ci/test.sh

mutants:          ## each mechanism switched off: does a test notice?
	@ci/mutants.sh

check-core:       ## PostgreSQL's own tests with nitro substituted for btree (PG="18 debian", UPDATE=1)
	@ci/deps.sh
	@ci/core.sh

bench:            ## everything that is measured, as a page, JSON and plots (SECTIONS="server keys", SIZE=small)
	@MEASURE=1 ci/deps.sh
	@bench/all.sh $(SECTIONS)

bench-quick:      ## first figures, engine against its peers and nitro against btree
	@MEASURE=1 ci/deps.sh
	@bench/quick.sh

bench-images:     ## images: size, speed of writing and loading, what they cost and save
	@MEASURE=1 ci/deps.sh
	@bench/run.sh images

bench-memory:     ## bytes per entry of usual columns, beside btree and GIN (ROWS=3000000)
	@MEASURE=1 ci/deps.sh
	@bench/run.sh memory

bench-check:      ## instructions that the engine's operations take, beside those on record (UPDATE=1); those of plans, beside btree's
	@ci/deps.sh
	@bench/check.sh
	@bench/run.sh planning

check: check-workspace ## rustfmt, clippy, and how the pages read
	cargo clippy -q --manifest-path bench/engine/Cargo.toml --target-dir $(TARGET)/bench --all-targets -- -D warnings
	cargo clippy -q --manifest-path bench/report/Cargo.toml --target-dir $(TARGET)/bench --all-targets -- -D warnings

.PHONY: check-workspace
check-workspace:  # the same without what only measures
	ci/prose.sh
	cargo fmt --all --check
	$(CARGO) clippy -q --all-targets $(FEATURES) -- -D warnings
	cargo clippy -q -p nitro-engine -p nitro-image -p nitro-model -p nitro-server-tests --all-targets -- -D warnings

fmt:              ## format the sources
	cargo fmt --all

docs:             ## the manual as a book with a search, in target/docs/book (installs mdBook into target/)
	@ci/docs.sh

clean:            ## remove everything that was built here
	cargo clean

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20
