# `make` alone prints what there is. Plain `go build ./...` and `go test ./...` need none of it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO        ?= go
FUZZTIME  ?= 10s
BENCH     ?= Pick$$|Relay|SSE|ReadBody
BENCHTIME ?= 1s
COUNT     ?= 1
SOAK      ?= 10m
FLOOD     ?= 60s

# Modules of their own: what they need stays out of the product's go.sum.
TEST_MODULES = $(patsubst %/go.mod,%,$(wildcard test/*/go.mod bench/*/go.mod))

# Of them, the suites whose servers, proxies and SDKs an install script brings.
INSTALLED = test/real test/proxies test/sdk-python test/sdk-node test/page

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: wasm ## build the static binary .bin/kvasir, with the labs for browsers in it
	CGO_ENABLED=0 $(GO) build -trimpath -tags webassembly -o .bin/kvasir ./cmd/kvasir

# What the build tag webassembly embeds. cmd/kvasir/lab_export.go has the same flags.
.PHONY: wasm
wasm:
	GOOS=js GOARCH=wasm CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags='-s -w' -o web/built/kvasir.wasm ./web/wasm
	gzip -9nf web/built/kvasir.wasm
	cp "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" web/built/

.PHONY: demo
demo: ## run four emulated engines, the gateway and light traffic
	$(GO) run ./cmd/kvasir demo

.PHONY: test
test: ## run all tests, those of modules of their own included
	$(GO) test ./...
	@# -count=1: they build the binary, which go's cache of results does not see.
	for module in $(filter-out $(INSTALLED),$(TEST_MODULES)); do (cd "$$module" && $(GO) test -count=1 ./...); done

# Packages without a goroutine (TestArchitecture holds them to it) whose tests are long: there is
# nothing in them that could race.
SEQUENTIAL = lab sim sim/contest selection/prefix selection/policy client/arrival client/workload client/workload/trace \
	api engine internal/queueing internal/draw gateway/admission gateway/limit gateway/demand

.PHONY: race
race: ## run tests under the race detector (needs a C compiler), but for long ones without goroutines
	CGO_ENABLED=1 $(GO) test -race $$($(GO) list ./... | grep -v $(foreach p,$(SEQUENTIAL),-e '/$(p)$$'))
	@# Of sim's tests this one runs a gateway, once for each policy.
	CGO_ENABLED=1 $(GO) test -race -run '^TestPromise$$/^(cache-aware|predicted-ttft)' ./sim

.PHONY: check
check: ## format, vet, staticcheck, modernisers, go.mod, WebAssembly, architecture
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) fix -diff ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) mod tidy -diff
	for module in tools $(TEST_MODULES); do (cd "$$module" && $(GO) mod tidy -diff); done
	GOOS=js GOARCH=wasm $(GO) vet ./web/wasm
	GOOS=js GOARCH=wasm $(GO) build -trimpath -buildvcs=false -ldflags='-s -w' -o /dev/null ./web/wasm
	$(GO) test -run '^TestArchitecture' .

# One line a target, "folder name": go test fuzzes one target of one package at a time.
# Folders that hold modules of their own are left out.
FUZZ_TARGETS = grep -rho --include='*_test.go' --exclude-dir={testdata,test,bench,tools,.cache} --with-filename '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|/[^/]*:func | |' | sort -u

.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME (10s)
	@$(FUZZ_TARGETS) | while read -r folder name; do \
		echo "fuzz $$folder $$name"; \
		GO="$(GO)" tools/fuzz "$$folder" "$$name" $(FUZZTIME); \
	done

.PHONY: bench
bench: ## run the benchmarks of pick, relay and body (BENCH=. runs all), each COUNT (1) times
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) -benchmem ./... | grep -v 'no test files\|^PASS\|^goos\|^goarch'

.PHONY: bench-gateway
bench-gateway: ## measure what the gateway costs beside ReverseProxy and nginx (ARGS=-quick)
	bench/gateway/run $(ARGS)

.PHONY: validate-engine
validate-engine: ## set the engine model beside logs of real vLLM
	@$(GO) test -count=1 -v -run '^TestEngine_MatchesRealVLLM$$' ./engine/validate

.PHONY: soak
soak: ## random faults on both sides against the invariants, for SOAK (10m)
	cd test/endurance && $(GO) run ./soak -for $(SOAK)

.PHONY: overload
overload: ## ask a pool for three times its capacity in real time, and look whether it comes back (ARGS='-surge 20s')
	cd test/endurance && $(GO) run ./overload $(ARGS)

.PHONY: flood
flood: ## 2,000 streams with rude clients, for FLOOD (60s)
	cd test/endurance && $(GO) run ./flood -for $(FLOOD)

.PHONY: kill
kill: ## kill engines and the gateway under load
	cd test/endurance && $(GO) run ./kill

# The folder of the full traces (docs/traces.md says where they come from).
KVASIR_TRACES ?= $(wildcard ../shared/traces)
export KVASIR_TRACES

SIM_MOONCAKE = .bin/kvasir sim --replicas 8 --model llama-3.1-8b --device h100 --policy all --slo-ttft 4s --slo-tpot 100ms

.PHONY: sim-mooncake
sim-mooncake: build ## all policies on both Mooncake traces: table, goodput, curves in artifacts/ (needs KVASIR_TRACES)
	@if [ -z "$(KVASIR_TRACES)" ]; then echo "set KVASIR_TRACES to the folder of the traces, see docs/traces.md"; exit 1; fi
	mkdir -p artifacts
	for trace in conversation synthetic; do \
		file="$(KVASIR_TRACES)/mooncake/$${trace}_trace.jsonl"; \
		$(SIM_MOONCAKE) --trace "$$file" --seeds 3 --rate-scale 3; echo; \
		$(SIM_MOONCAKE) --trace "$$file" --seeds 3 --goodput --svg "artifacts/goodput-$$trace.svg" --csv "artifacts/goodput-$$trace.csv"; echo; \
	done

# MACHINE names the machine on the page.
MACHINE ?= $(shell nproc) cores, $(shell $(GO) env GOVERSION)

.PHONY: results
results: build ## write docs/results.md and lab/results.json: all policies on all pools and workloads, an hour on 2 cores (needs KVASIR_TRACES)
	@if [ -z "$(KVASIR_TRACES)" ]; then echo "set KVASIR_TRACES to the folder of the traces, see docs/traces.md"; exit 1; fi
	.bin/kvasir results --format md --out docs/results.md --machine "$(MACHINE)" $(ARGS)
	.bin/kvasir results --figures docs/results.md --out lab/results.json

.PHONY: results-quick
results-quick: build ## print a small version of that, three minutes on 2 cores (needs KVASIR_TRACES)
	@if [ -z "$(KVASIR_TRACES)" ]; then echo "set KVASIR_TRACES to the folder of the traces, see docs/traces.md"; exit 1; fi
	.bin/kvasir results --quick $(ARGS)

.PHONY: validate-sim
validate-sim: build ## one trace in real time and simulated, side by side (6 minutes)
	cd test/validation && $(GO) run . -binary ../../.bin/kvasir $(ARGS)

.PHONY: validate-live
validate-live: build ## the policies' ranking and the predicted TTFT in real time, beside the simulator (10 minutes)
	cd test/validation && $(GO) run ./live -binary ../../.bin/kvasir $(ARGS)

.PHONY: test-real
test-real: ## install llama.cpp's server and uvicorn, put kvasir before them
	bash test/real/install.sh
	cd test/real && $(GO) test -count=1 -v ./...

.PHONY: test-proxies
test-proxies: ## install nginx and HAProxy, put them before and behind kvasir
	bash test/proxies/install.sh
	cd test/proxies && $(GO) test -count=1 -v ./...

.PHONY: test-sdks
test-sdks: ## install the Python and Node SDKs, call every route with them
	bash test/sdk-python/install.sh
	bash test/sdk-node/install.sh
	cd test/sdk-python && $(GO) test -count=1 -v ./...
	cd test/sdk-node && $(GO) test -count=1 -v ./...

.PHONY: test-page
test-page: ## install Chromium, use the page in it: labs, export, dashboard, accessibility
	bash test/page/install.sh
	cd test/page && $(GO) test -count=1 -v ./...

.PHONY: screenshots
screenshots: ## take pictures of every view of the page, light and dark, in docs/img
	bash test/page/install.sh
	mkdir -p docs/img
	cd test/page && KVASIR_SCREENSHOTS="$(CURDIR)/docs/img" $(GO) test -count=1 -v -timeout 20m -run '^TestScreenshots$$' .

.PHONY: cover
cover: ## write coverage to artifacts/cover.html and print the total
	mkdir -p artifacts
	$(GO) test -coverpkg=./... -coverprofile=artifacts/cover.out ./...
	$(GO) tool cover -html=artifacts/cover.out -o artifacts/cover.html
	$(GO) tool cover -func=artifacts/cover.out | tail -n 1

.PHONY: ci
ci: ## run what decides whether a change lands
	bash .ci/run
