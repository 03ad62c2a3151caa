# Everything that a change is checked with. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

TAGS  := duckdb_arrow
GO    := go
SEEDS ?= 300
KILLS ?= 20
TRIALS ?= 20
FUZZ  ?= 480

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/kinetl
	$(GO) build -tags $(TAGS) -o bin/kinetl ./cmd/kinetl

demo: build ## Build, and run the whole path on this machine without AWS
	bin/kinetl demo

test: ## Run the tests, third-party servers included where npm is there
	@command -v npm >/dev/null || echo "npm is missing: the checks against kinesis-local and kinesalite are left out"
	$(GO) vet -tags $(TAGS) ./...
	$(GO) test -tags $(TAGS) ./...
	$(GO) test -short ./dest/duckdb ./cmd/kinetl

race: ## Run the tests with the race detector, and memory that is given back made unreadable
	$(GO) test -race -tags $(TAGS),invariants ./...

sim: ## Simulate SEEDS random runs (10000 before a release)
	$(GO) test ./internal/sim -run 'TestSim$$' -timeout 3h -v -seeds=$(SEEDS) | grep -v '^=== '

interop: ## Work together with the real KCL (needs Java and Maven), and rewrite interop/RESULTS.md
	@for tool in java mvn; do command -v $$tool >/dev/null || { echo "$$tool is missing: the real KCL can't be run; install a JDK (17 or later) and Maven"; exit 1; }; done
	$(GO) vet -tags $(TAGS),interop ./interop
	$(GO) test -tags $(TAGS),interop ./interop -count 1 -parallel 4 -timeout 30m -v -results RESULTS.md

crash: ## Kill the real program KILLS times while it loads, alone and one of three (50 before a release)
	$(GO) test -tags $(TAGS) ./cmd/kinetl -run 'TestCrashLoop$$' -timeout 1h -v -kills=$(KILLS)

# go test may end a fuzzing run that found nothing with "context deadline exceeded", when
# a worker answers late as the time is up. Such a target is fuzzed once more.
fuzz: ## Fuzz every parser, FUZZ seconds in all
	@list=$$(for p in $$($(GO) list -tags $(TAGS) ./...); do \
	    $(GO) test -tags $(TAGS) -list '^Fuzz' $$p | sed -n "s|^Fuzz|$$p Fuzz|p"; done); \
	  n=$$(echo "$$list" | wc -l); each=$$(( $(FUZZ) / n )); log=$$(mktemp); \
	  fuzz() { $(GO) test -tags $(TAGS) -run '^$$' -fuzz "^$$2\$$" -fuzztime $${each}s $$1 2>&1 | tee $$log; }; \
	  echo "$$n targets, $$each s each"; \
	  echo "$$list" | while read p f; do echo "$$p $$f"; \
	    fuzz $$p $$f || { grep -q '^ *context deadline exceeded$$' $$log && ! grep -q 'Failing input' $$log && fuzz $$p $$f; } || exit 1; done; \
	  rm -f $$log

bench: ## Compare with the other ways, side by side, and rewrite bench/RESULTS.md
	$(GO) build -tags $(TAGS) -o bin/bench ./bench
	bin/bench

bench-postgres: ## Compare with the usual way into PostgreSQL
	$(GO) test -tags $(TAGS) ./bench -run 'TestPostgresRatio$$' -v -compare

chaos: build ## Ten minutes of kills, pauses, throttling, splits and merges: 5 workers, 64 shards
	$(GO) test -tags $(TAGS) ./cmd/kinetl -run 'TestChaos$$' -timeout 1h -v -chaos 10m -workers 5 -shards 32

trials: ## Measure TRIALS times how long shards take to move after a kill, a deploy, a join: 5 minutes
	$(GO) test -tags $(TAGS) ./cmd/kinetl -run 'TestTrials$$' -count 1 -timeout 1h -parallel 4 -v -trials $(TRIALS) | grep -v '^=== '

measure: build ## Measure idle shards, latency, and a backlog of 20 million records
	$(GO) build -tags $(TAGS) -o bin/bench ./bench
	bin/bench idle
	$(GO) test -tags $(TAGS) ./bench -run 'TestManyShards$$' -count 1 -v -shards 2500
	bin/bench latency
	bin/bench backlog

microbench: ## Run the benchmarks of single functions
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchmem ./...

lint: ## Run the linters: layering and size rules are tests
	$(GO) vet -tags $(TAGS) ./...
	$(GO) test ./internal/lint
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }

docs: ## Write the generated references and schemas anew
	$(GO) test ./config -run 'Current$$' -update
	$(GO) test ./httpapi -run 'TestDocument$$' -update

verify: lint test race sim fuzz crash ## Everything that CI runs

.PHONY: help build demo test race sim interop crash fuzz bench bench-postgres chaos trials measure microbench lint docs verify
