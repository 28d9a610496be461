#!/usr/bin/env bash
# Installs what the build (or the tests, or the lab) needs, if it is missing and we have the rights. Otherwise prints the command to run.
# usage: setup.sh build|test|faults|lint|docs|lab|packages|web|fleet|dist|kube|image
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-build}
damo_version=3.4.3

packages=(clang libbpf-dev libelf-dev zlib1g-dev pkg-config gcc libc6-dev)
case $kind in
build | lint | docs) ;;
# prometheus has promtool, too.
test) packages+=(fish zsh redis-server redis-tools memcached prometheus tmux python3 python3-venv file procps util-linux) ;;
# lintian and rpm check what was made.
dist) packages+=(lintian rpm dpkg-dev xz-utils systemd jq git) ;;
faults) packages+=(strace python3 procps util-linux) ;;
# Not for the build: only the page and its tests take Node and a browser. A Node that is there already need not be Debian's.
web)
    packages=(chromium)
    command -v npm >/dev/null || packages+=(nodejs npm)
    ;;
# Java is for Spark. One that is there already need not be Debian's.
fleet)
    packages=(python3 python3-venv)
    command -v java >/dev/null || packages+=(default-jre-headless)
    ;;
# For charts and manifests: helm and kubeconform are built below, by a Go that is there or by that of the Debian packages.
kube) packages=(apparmor diffutils) ;;
image) packages=(buildah binutils jq) ;;
# Kernels and busybox for guests are fetched without being installed (lab/kernels.sh).
lab) packages+=(qemu-system-x86 python3 util-linux binutils xz-utils) ;;
# For lab/debian.sh and lab/roots.sh, which run what has been built elsewhere. uidmap: without root they make name spaces.
packages) packages=(gcc libc6-dev qemu-system-x86 util-linux binutils xz-utils mmdebstrap e2fsprogs uidmap jq file python3-yaml) ;;
*)
    echo "setup: unknown kind $kind; usage: setup.sh build|test|faults|lint|docs|lab|packages|web|fleet|dist|kube|image" >&2
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
    # Packages do not start their servers on this machine, nor at its next start: the tests start their own. RUNLEVEL=1 is for machines without systemd.
    local quiet=/usr/sbin/policy-rc.d
    if [ -d /run/systemd/system ] && [ ! -e $quiet ]; then
        "${as_root[@]}" sh -c "printf '#!/bin/sh\nexit 101\n' >$quiet && chmod 755 $quiet"
        # shellcheck disable=SC2064 # as they are now
        trap "${as_root[*]} rm -f $quiet" EXIT
    fi
    local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
        apt-get install -y -q --no-install-recommends "${missing[@]}")
    "${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -q >&2; "${install[@]}" >&2; }
    [ -d /run/systemd/system ] || return 0
    for package in "${missing[@]}"; do
        case $package in redis-server | memcached | prometheus) "${as_root[@]}" systemctl disable --quiet "$package" || true ;; esac
    done
}

# damo, for the tests that exchange recordings with it. Without a network these tests report that it is missing.
install_damo() {
    local venv=target/damo-venv
    [ ! -x "$venv/bin/damo" ] || return 0
    echo "setup: installing damo $damo_version into $venv" >&2
    { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "damo==$damo_version"; } >&2 ||
        echo "setup: damo could not be installed: its tests are skipped" >&2
}

# The Python side of the fleet, its tests and lints: versions are those of fleet/requirements-dev.txt.
install_fleet() {
    local venv=target/fleet-venv stamp
    stamp=$(cat fleet/requirements*.txt | sha256sum)
    [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ] || return 0
    echo "setup: installing the requirements of fleet/ into $venv" >&2
    mkdir -p target
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r fleet/requirements-dev.txt >&2
    # From the tree: a change to it needs no new installation.
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --editable fleet >&2
    echo "$stamp" >"$venv/stamp"
}

# A program from crates.io, built into target/tools: for this tree, and nothing else on the machine.
install_tool() { # install_tool NAME VERSION [ARGS OF CARGO INSTALL...]
    local name=$1 version=$2
    shift 2
    [ ! -x "target/tools/bin/$name" ] || [ "$(<"target/tools/$name.version")" != "$version" ] || return 0
    echo "setup: building $name $version into target/tools" >&2
    cargo install --quiet --locked --root target/tools --target-dir target/tools/build --version "=$version" "$@" "$name"
    echo "$version" >"target/tools/$name.version"
    rm -rf target/tools/build
}

# A program of Go, built into target/tools as well. A Go before 1.21 does not fetch the one that these need.
install_go_tool() { # install_go_tool NAME VERSION PACKAGE
    local name=$1 version=$2 package=$3
    [ ! -x "target/tools/bin/$name" ] || [ "$(cat "target/tools/$name.version" 2>/dev/null)" != "$version" ] || return 0
    if ! command -v go >/dev/null; then
        echo "setup: go was not found: install Go 1.24 or later to build $name (Debian 13 has it: golang-go)" >&2
        exit 1
    fi
    echo "setup: building $name $version into target/tools" >&2
    mkdir -p target/tools/bin
    GOBIN="$PWD/target/tools/bin" GOFLAGS=-modcacherw go install "$package@$version"
    echo "$version" >"target/tools/$name.version"
}

if [[ $kind != @(web|fleet|packages|kube|image) ]] && ! command -v cargo >/dev/null; then
    echo "setup: cargo was not found: install Rust 1.95 or later (https://rustup.rs)" >&2
    exit 1
fi
install_packages
case $kind in
test) install_damo ;;
fleet) install_fleet ;;
kube)
    install_go_tool kubeconform v0.6.7 github.com/yannh/kubeconform/cmd/kubeconform
    install_go_tool helm v3.18.6 helm.sh/helm/v3/cmd/helm
    ;;
web)
    # npm would only warn, and what needs it fails elsewhere.
    [ "$(node --version | sed 's/^v//; s/\..*//')" -ge 20 ] || {
        echo "setup: node is $(node --version), and the page takes 20 or later, which Debian 13 has: install it from there or from nodejs.org" >&2
        exit 1
    }
    ;;
lint) install_tool cargo-deny 0.20.2 ;;
docs) install_tool mdbook 0.5.4 --no-default-features --features search ;;
dist)
    install_tool cargo-deb 3.8.0
    install_tool cargo-generate-rpm 0.21.1
    install_tool cargo-about 0.9.3 --features cli
    install_tool cargo-sbom 0.10.0
    ;;
esac
