# The verbs of the repository: https://just.systems. Each is one or two cargo commands, for those who have no `just`.

# What there is
default:
    @just --list

# All tests
test *ARGS:
    cargo test --workspace {{ARGS}}

# A simulated plant and a gateway pair; the leader is killed after ten seconds
demo *ARGS="--kill-leader-after 10s":
    cargo run --release -- demo {{ARGS}}

# Format, lints, documentation, licences
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    if command -v cargo-deny >/dev/null; then cargo deny check; else echo "no cargo-deny: licences not checked"; fi

# Benchmarks; each prints its ratio to the peer
bench *ARGS:
    cargo bench {{ARGS}}
