#!/usr/bin/env bash
# Runs every test. Prints results as they come, keeps the whole output in target/test.log, and lists skipped tests at the end. A test that
# fails is not run again: a test that needs a second try asserts something uncertain, and has to be changed (CONTRIBUTING.md).
set -euo pipefail
cd "$(dirname "$0")/.."
log=target/test.log
# What incremental builds need is written for the next build. Where there was none before, as in CI, there is hardly a next one.
[ -d target/debug/incremental ] || export CARGO_INCREMENTAL=0
mkdir -p target

run() { # run LOG ARGS...: cargo test, showing results only; the exit status is cargo's
    local log=$1
    shift
    # The `|| true` belongs to grep alone. After the whole pipeline it would hide cargo's exit status.
    cargo test --locked --no-fail-fast "$@" 2>&1 | tee "$log" | {
        grep --line-buffered -E '^ +(Running|Doc-tests)|^test result|^test .*FAILED|^error|^warning: unused|skipped: ' || true
    }
    return "${PIPESTATUS[0]}"
}

output_of_failed() {
    sed -n '/^failures:$/,/^test result/p' "$1"
}

failures() {
    output_of_failed "$1" | head -n 400 || true
    grep -A20 -E '^error(\[|:)' "$1" | head -n 100 || true
}

# What each failed test said, once more: at the end, where it is found, also when only the end of the output is kept.
said() {
    output_of_failed "$1" | grep -E -A4 "^thread '.*panicked at" | cut -c1-1000 | head -n 60 || true
}

status=0
run "$log" --workspace -- --show-output || status=1
if [ "$status" -ne 0 ]; then
    echo "--- failures (whole output in $log) ---"
    failures "$log"
fi

skipped=$(grep -hoE 'skipped: .*' "$log" | sort | uniq -c | sort -rn || true)
count=$(grep -cE 'skipped: ' "$log" || true)
echo
echo "skipped tests: ${count:-0}"
[ -z "$skipped" ] || echo "$skipped"
if [ "$status" -ne 0 ]; then
    echo
    echo "failed tests: $(grep -cE '^test .*FAILED' "$log" || true)"
    grep -hE '^test .*FAILED' "$log" || true
    said "$log"
fi
exit "$status"
