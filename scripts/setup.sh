#!/usr/bin/env bash
# Installs the Debian packages that building (or testing) needs, if they are missing and we may; else says what to run.
# usage: setup.sh build|test
set -euo pipefail

packages=(clang libbpf-dev libelf-dev zlib1g-dev pkg-config gcc libc6-dev)
if [ "${1:-build}" = test ]; then
    packages+=(redis-server redis-tools memcached tmux python3 procps util-linux)
fi

if ! command -v cargo >/dev/null; then
    echo "setup: cargo was not found: install Rust 1.88 or later (https://rustup.rs)" >&2
    exit 1
fi
if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system: install the equivalents of: ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo)
else
    echo "setup: packages are missing; run: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi

echo "setup: installing ${missing[*]}" >&2
# RUNLEVEL=1: servers that tests start for themselves are not started for the machine.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends "${missing[@]}")
"${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -q >&2; "${install[@]}" >&2; }
