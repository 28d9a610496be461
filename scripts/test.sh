#!/usr/bin/env bash
# Runs every test. Shows results as they come, keeps the whole output in target/test.log, and ends with what was skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
log=target/test.log
mkdir -p target

status=0
cargo test --workspace --locked --no-fail-fast -- --show-output 2>&1 | tee "$log" |
    grep --line-buffered -E '^ +(Running|Doc-tests)|^test result|^test .*FAILED|panicked at|^error|^warning: unused|skipped:' || status=$?
[ "${PIPESTATUS[0]}" -eq 0 ] && status=0 || status=1

if [ "$status" -ne 0 ]; then
    echo "--- failures (whole output in $log) ---"
    sed -n '/^failures:$/,/^test result/p' "$log" | head -n 400
    grep -A20 -E '^error(\[|:)' "$log" | head -n 100 || true
fi
skipped=$(grep -hoE 'skipped: .*' "$log" | sort | uniq -c | sort -rn || true)
count=$(grep -cE 'skipped: ' "$log" || true)
echo
echo "skipped tests: ${count:-0}"
[ -z "$skipped" ] || echo "$skipped"
exit "$status"
