#!/usr/bin/env bash
# Builds a fuzz target with coverage for libFuzzer on the stable toolchain, and runs it for a while.
# usage: fuzz.sh [TARGET [SECONDS]]     TARGET: a file of fuzz/fuzz_targets without .rs, or `all`, one after the other
#
# Does what cargo-fuzz does, without the sanitizers, which need a nightly compiler. The passes and arguments below are those that
# cargo-fuzz gives to rustc. With --target, build scripts and macros are built without them. New inputs are kept in fuzz/corpus. An input
# that fails is kept in fuzz/artifacts, and its path is printed, to run it again.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-all}
seconds=${2:-60}
host=$(rustc -vV | sed -n 's/^host: //p')

flags=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing)
targets=("$target")
[ "$target" != all ] || mapfile -t targets < <(cd fuzz/fuzz_targets && basename -s .rs -a -- *.rs)
for target in "${targets[@]}"; do
    (cd fuzz && RUSTFLAGS="${flags[*]}" cargo build --release --locked --target "$host" --bin "$target")
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    echo "fuzz target $target, $seconds s"
    # Memory beyond the limits that the targets give to readers counts as a finding.
    "fuzz/target/$host/release/$target" -artifact_prefix="fuzz/artifacts/$target/" -max_total_time="$seconds" -max_len=4096 \
        -rss_limit_mb=512 -print_final_stats=1 "fuzz/corpus/$target"
done
