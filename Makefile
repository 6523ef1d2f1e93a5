# gantry: one static binary. 'make help' lists the targets.

GO      ?= go
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/gantry-tools/gantry/cli.version=$(VERSION)
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)'
TOOL    := $(GO) tool -modfile=tools/go.mod

.PHONY: all build test lint generate cross demo bench clean help

all: build

build: ## the gantry binary for this machine
	$(BUILD) -o gantry ./cmd/gantry

test: lint build ## everything CI checks; installs what the tests need by apt
	tools/install-deps test
	tools/check-generated
	tools/run-tests

lint: ## gofmt, go vet and staticcheck, all at zero
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt these files:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	cd tools && $(GO) vet ./... && $(GO) tool staticcheck ./...

generate: ## the BPF programs, their Go code and the helpers, by clang 14
	tools/install-deps generate
	$(GO) generate ./internal/linux/bpf/... ./internal/linux/helper/...

cross: ## arm64 Linux, and the read side on macOS
	GOOS=linux GOARCH=arm64 $(BUILD) -o bin/gantry-linux-arm64 ./cmd/gantry
	GOOS=darwin GOARCH=arm64 $(BUILD) -o bin/gantry-darwin-arm64 ./cmd/gantry

demo: build ## two containers, five seconds, and who burns the CPU
	tools/install-deps demo
	demo/run

bench: build ## gantry against perf on the same files; BENCH_SIZE=small|medium|large
	tools/install-deps bench
	cd tools && CGO_ENABLED=0 $(GO) build -o ../bin/bench ./bench
	bin/bench -size '$(or $(BENCH_SIZE),small)' $(BENCH_FLAGS)

clean: ## remove what the other targets made
	rm -rf bin gantry demo.svg demo.pb.gz demo.gantry

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## */\1\t/p' Makefile | expand -t 10
