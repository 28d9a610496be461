#!/usr/bin/env bash
# Checks the structure of the tree: which crate uses which, which crates depend on libbpf, how long files are, and
# that no two tests have one name. Part of `make lint`.
# usage: check-crates.sh
#
# Cargo itself only rejects cycles. A dependency in the wrong direction compiles, and brings clang and libbpf, or the command line, to
# crates that should not need them. Only normal dependencies are checked: tests may use any crate. Needs cargo and awk, and builds
# nothing.
#
# exit status: 0 every rule holds; 1 a rule is broken, and how to fix it was printed
set -euo pipefail
cd "$(dirname "$0")/.."

# Which of our crates each crate may use. Names omit `isotherm-`. A crate without a row is an error. A row is an upper bound: a crate
# uses less if it can.
declare -A may_use=(
    [units]=""
    [rng]="units"
    [heat]="units rng"
    [sys]="units"
    [host]="units rng sys"
    [vmstat]="units"
    [bpf]="units sys vmstat"
    [sources]="units heat sys bpf host"
    [monitor]="units heat sys"
    [schemes]="units heat sys"
    [placement]="units rng heat sys host"
    [record]="units heat"
    [stream]="units heat"
    # Neither reads processes nor decides anything: sockets and signals of a service manager.
    [systemd]=""
    [ship]="rng sandbox stream systemd rollup"
    [kube]="sandbox schemes systemd"
    [rollup]="units heat sys schemes stream"
    # What rollups of a fleet are tried with.
    [fleet-model]="units rng heat stream rollup"
    [serve]="units heat sys sandbox stream systemd record view"
    [view]="units heat vmstat placement"
    [sim]="units rng frames heat vmstat"
    [workload]="units heat sys"
    [frames]="units rng"
    [pools]="units frames"
    [c]="units pools"
    # The command line. The simulator is behind its feature `model`.
    [sandbox]="sys"
    [isotherm]="units rng heat sys host vmstat bpf sandbox sources monitor schemes placement record rollup stream systemd view workload frames pools"
    [bench]="units rng heat sys host vmstat bpf sandbox sources monitor schemes placement record rollup stream systemd view sim workload frames pools isotherm"
)
# What optional features may add, by CRATE.
declare -A may_use_by_feature=([isotherm]="sim")
# The crates that may depend on libbpf, and so on clang at build time. All others build without both.
reach_libbpf="bpf sources isotherm bench"
# The most lines that a file under src/ may have, without its tests.
max_lines=600

failed=0
fail() {
    echo "check-crates: $1" >&2
    failed=1
}

short() { # isotherm-heat -> heat, isotherm -> isotherm
    sed 's/^isotherm-//'
}

# The names in `cargo tree`'s lines, which are "name v1.2.3 (path)".
names() {
    awk '$1 != "" && !seen[$1]++ {print $1}'
}

has() { # has WORD WORDS
    [[ " $2 " == *" $1 "* ]]
}

# Ends the script if cargo fails, so that a check of an empty list does not pass.
tree() {
    cargo tree --locked --prefix none "$@" || {
        echo "check-crates: cargo tree $* failed" >&2
        kill -TERM $$
    }
}

uses() { # uses CRATE FLAGS...: prints our crates that it uses directly
    local crate=$1
    shift
    tree --edges normal --package "$crate" --depth 1 "$@" | names | grep -E '^isotherm(-|$)' | grep -vx "$crate" || true
}

check_edges() { # check_edges CRATE ALLOWED FLAGS...
    local crate=$1 allowed=$2 used
    shift 2
    while read -r used; do
        [ -n "$used" ] || continue
        has "$(short <<<"$used")" "$allowed" || fail "$crate uses $used, and may use only: ${allowed:-none of ours}.
  Move what it needs from there to a crate below both, or take it as an argument or a trait; if the plan itself is to change,
  change the table in scripts/check-crates.sh and the list of crates in docs/design/overview.md together."
    done < <(uses "$crate" "$@")
}

check_lengths() {
    find crates/*/src bench/src -name '*.rs' ! -name tests.rs ! -path '*/tests/*' -print0 | sort -z | xargs -0 awk -v max="$max_lines" '
        function report() {
            if (file != "" && lines > max)
                printf "%s has %d lines without its tests, more than %d: move one of its jobs to a separate file\n", file, lines, max
        }
        FNR == 1 {report(); file = FILENAME; lines = 0; held = 0; marked = 0; inside = 0}
        # A block of tests: its attribute, perhaps more of those, and all up to the brace in the column of the attribute.
        inside {if ($0 == indent "}") inside = 0; next}
        !marked && /^ *#\[cfg\((all\()?test[,)]/ {marked = 1; held = 1; match($0, /^ */); indent = substr($0, 1, RLENGTH); next}
        marked && /^ *#\[/ {held++; next}
        marked && /^ *(pub(\([a-z]+\))? )?mod [a-z_0-9]+ \{$/ {marked = 0; inside = 1; next}
        marked && /^ *(pub(\([a-z]+\))? )?mod [a-z_0-9]+;$/ {marked = 0; next}
        marked {marked = 0; lines += held}
        {lines++}
        END {report()}'
}

trap 'exit 1' TERM
mapfile -t ours < <(tree --edges normal --workspace --depth 0 | names)
[ "${#ours[@]}" -gt 10 ] || fail "cargo lists only ${#ours[@]} crates of ours"
for crate in "${ours[@]}"; do
    name=$(short <<<"$crate")
    [ -n "${may_use[$name]+row}" ] || {
        fail "$crate has no row in the table of scripts/check-crates.sh: add one with what it may use"
        continue
    }
    # The features of the benches are other allocators, which would be fetched for this check.
    [ "$name" = bench ] && all_features=() || all_features=(--all-features)
    added=${may_use_by_feature[$name]:-}
    [ -z "$added" ] || check_edges "$crate" "${may_use[$name]}" --no-default-features
    check_edges "$crate" "${may_use[$name]}${added:+ $added}" "${all_features[@]}"
done

# Which crates depend on libbpf, directly or indirectly. Each crate is checked separately, because a tree of the whole workspace enables
# the features of all crates together.
for crate in "${ours[@]}"; do
    name=$(short <<<"$crate")
    ! has "$name" "$reach_libbpf" || continue
    reached=$(tree --edges normal,build --package "$crate" --all-features)
    by=$(names <<<"$reached" | grep -xE 'libbpf-(rs|sys|cargo)' | head -n 1 || true)
    [ -z "$by" ] || fail "$crate reaches $by, which takes clang and libelf to build; only these may: $reach_libbpf.
  \`cargo tree -p $crate -e normal -i $by\` prints the path. Depend on a trait or on types instead of on what loads programs."
done

# Most crates have no examples in their documentation, and cargo takes a second per crate to find none. So doctests are switched off for
# them. This checks that such crates indeed have no examples.
while read -r manifest; do
    dir=$(dirname "$manifest")
    example=$(find "$dir/src" -name '*.rs' -print0 | xargs -0 awk '
        FNR == 1 {inside = 0}
        /^ *\/\/[\/!] *```/ {
            if (!inside && /```(rust|no_run|should_panic)?$/) {print FILENAME ":" FNR; exit}
            inside = !inside
        }')
    [ -z "$example" ] || fail "$example opens an example, which is not run: $manifest has doctest = false; remove that"
done < <(grep -l '^doctest = false' crates/*/Cargo.toml)

# The lab finds test programs by name.
while read -r name; do
    fail "several crates have a test $name: give one another name, because the lab finds its programs by name"
done < <(find crates/*/tests -maxdepth 1 -name '*.rs' -printf '%f\n' | sort | uniq -d)

lengths=$(check_lengths)
[ -z "$lengths" ] || while read -r line; do fail "$line"; done <<<"$lengths"

exit "$failed"
