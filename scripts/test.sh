#!/usr/bin/env bash
# Runs every test. Shows results as they come, keeps the whole output in target/test.log, and ends with what was skipped.
#
# Tests that watch living processes depend on a machine that may be busy with something else: those that fail are run once more,
# alone, and it is said which these were. Every other failure is final.
set -euo pipefail
cd "$(dirname "$0")/.."
log=target/test.log
live=(--package isotherm --test cli --test collapse --test damo --test events --test herd --test live --test placement --test scale --test servers --test top
    --package isotherm-sources --test perf --package isotherm-sys --test rings)
mkdir -p target

run() { # run LOG ARGS...: cargo test, showing results only; the exit status is cargo's
    local log=$1
    shift
    # The `|| true` belongs to grep alone: after the whole pipeline it would hide how cargo ended.
    cargo test --locked --no-fail-fast "$@" 2>&1 | tee "$log" | {
        grep --line-buffered -E '^ +(Running|Doc-tests)|^test result|^test .*FAILED|^error|^warning: unused|^skipped:' || true
    }
    return "${PIPESTATUS[0]}"
}

failures() {
    sed -n '/^failures:$/,/^test result/p' "$1" | head -n 400
    grep -A20 -E '^error(\[|:)' "$1" | head -n 100 || true
}

status=0
run "$log" --workspace -- --show-output || status=1
if [ "$status" -ne 0 ]; then
    echo "--- failures (whole output in $log) ---"
    failures "$log"
    # Names of failed tests, by whether the test binary is one of the live ones.
    mapfile -t failed_live < <(awk '/^ +Running /{live = ($2 ~ /^tests\/(cli|collapse|damo|events|herd|live|perf|placement|rings|scale|servers|top)\.rs$/)} /^test .* FAILED$/ && live {print $2}' "$log")
    all=$(grep -cE '^test .* FAILED$' "$log" || true)
    if [ "${#failed_live[@]}" -gt 0 ] && [ "${#failed_live[@]}" -eq "$all" ] && [ "$all" -le 8 ]; then
        echo "--- once more, alone: ${failed_live[*]} ---"
        if run target/test-again.log "${live[@]}" -- --show-output --test-threads=1 --exact "${failed_live[@]}"; then
            status=0
            echo "passed only when run alone: ${failed_live[*]}"
        else
            failures target/test-again.log
        fi
    fi
fi

skipped=$(grep -hoE 'skipped: .*' "$log" | sort | uniq -c | sort -rn || true)
count=$(grep -cE '^skipped: ' "$log" || true)
echo
echo "skipped tests: ${count:-0}"
[ -z "$skipped" ] || echo "$skipped"
exit "$status"
