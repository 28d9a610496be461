#!/usr/bin/env bash
# Installs what building (or testing, or the lab) needs, if it is missing and we may; else says what to run.
# usage: setup.sh build|test|lab
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-build}
damo_version=3.4.3

packages=(clang libbpf-dev libelf-dev zlib1g-dev pkg-config gcc libc6-dev)
case $kind in
build) ;;
test) packages+=(redis-server redis-tools memcached tmux python3 python3-venv file procps util-linux) ;;
# Kernels and busybox for guests are fetched without being installed (lab/kernels.sh).
lab) packages+=(qemu-system-x86 python3 util-linux binutils) ;;
*)
    echo "setup: unknown kind $kind; usage: setup.sh build|test|lab" >&2
    exit 2
    ;;
esac

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "setup: not a Debian system: install the equivalents of: ${packages[*]}" >&2
        return
    fi
    local missing=() as_root=() package status
    for package in "${packages[@]}"; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
            echo "setup: packages are missing; run: sudo apt-get install ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}" >&2
    # RUNLEVEL=1: servers that tests start for themselves are not started for the machine.
    local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
        apt-get install -y -q --no-install-recommends "${missing[@]}")
    "${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -q >&2; "${install[@]}" >&2; }
}

# damo, with which recordings are exchanged. Without a network the tests that need it say so.
install_damo() {
    local venv=target/damo-venv
    [ ! -x "$venv/bin/damo" ] || return 0
    echo "setup: installing damo $damo_version into $venv" >&2
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "damo==$damo_version"; } >&2 ||
        echo "setup: damo could not be installed: its tests are left out" >&2
}

if ! command -v cargo >/dev/null; then
    echo "setup: cargo was not found: install Rust 1.88 or later (https://rustup.rs)" >&2
    exit 1
fi
install_packages
[ "$kind" != test ] || install_damo
