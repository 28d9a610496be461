#!/usr/bin/env bash
# Fetches a stock Debian kernel, and the busybox that guests start with, without installing either.
# usage: kernels.sh VERSION...     VERSION is 6.1 (what Debian 12 boots) or 6.12 (its backport, also an ordinary package), and
#                                  6.1-disk or 6.12-disk for the same with modules for a root on a disk in place of those for swap
#
# Prints the directory of each kernel; it contains boot/vmlinuz-*. Packages are fetched once and kept in target/lab/. Delete
# that directory to get newer ones. Needs apt-get and dpkg, and the network the first time. Needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."
store=target/lab/packages
mkdir -p "$store"

fail() {
    echo "kernels: $1" >&2
    exit 1
}

[ $# -gt 0 ] || fail "no version given; usage: lab/kernels.sh 6.1|6.12|6.1-disk|6.12-disk..."
command -v apt-get >/dev/null || fail "apt-get was not found: the lab takes its kernels from Debian"

# Prints the newest package of a version that apt knows. Package names contain the full version, so they have to be looked up.
package_of() {
    set -- "${1%-disk}"
    case $1 in
    busybox) echo busybox-static ;;
    6.1) apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-6\.1\..*\)/\1/p' | head -n 1 ;;
    *) apt-cache search --names-only "^linux-image-${1//./\\.}\.[0-9]+\+deb12-amd64\$" | cut -d' ' -f1 | sort -V | tail -n 1 ;;
    esac
}

# zram, and what it may need to compress. Which of them a kernel has as modules differs.
for_swap=('zram.ko*' 'zsmalloc.ko*' 'lzo*.ko*' 'lz4*.ko*' 'zstd*.ko*' 'xxhash*.ko*' '842*.ko*' '*deflate*.ko*')
# A disk of QEMU and its file system; autofs4 is the one module that systemd misses.
for_disk=('virtio.ko*' 'virtio_ring.ko*' 'virtio_pci*.ko*' 'virtio_blk.ko*' 'ext4.ko*' 'jbd2.ko*' 'mbcache.ko*' '*crc*.ko*' 'autofs4.ko*')

fetch() { # fetch NAME: leaves its files in $store/NAME
    local name=$1 package part="$store/$1.part" modules=("${for_swap[@]}")
    local must='zram.ko*'
    [[ $name != *-disk ]] || { modules=("${for_disk[@]}") && must='ext4.ko*'; }
    [ ! -d "$store/$name" ] || return 0
    package=$(package_of "$name")
    [ -n "$package" ] || fail "apt knows no package of $name: run apt-get update, or see apt-cache search linux-image"
    echo "kernels: fetching $package" >&2
    rm -rf "$part"
    mkdir -p "$part/files"
    (cd "$part" && apt-get -q download "$package" >apt.log 2>&1) || {
        cat "$part/apt.log" >&2
        fail "apt-get download $package failed: run apt-get update and try again"
    }
    # Modules are three quarters of a kernel package, and guests load only those of swap in memory, or of a disk.
    dpkg --fsys-tarfile "$part"/*.deb | tar -x -C "$part/files" --exclude='./lib/modules' --exclude='./usr/share'
    dpkg --fsys-tarfile "$part"/*.deb | tar -x -C "$part/files" --wildcards "${modules[@]/#/./lib/modules/*/}" 2>/dev/null || true
    # That of the first is in every kernel; of the others some are built in.
    [[ $name = busybox ]] || [ -n "$(find "$part/files/lib/modules" -name "$must" 2>/dev/null)" ] || fail "$package has no $must: its modules could not be unpacked"
    # Renamed when complete, so that an interrupted fetch is not taken for a finished one.
    mv "$part/files" "$store/$name"
    rm -rf "$part"
}

# The parts of a bench boot side by side, and each wants the same packages the first time.
exec {lock}>"$store/lock"
flock "$lock"
fetch busybox
for version in "$@"; do
    [[ $version =~ ^[0-9]+\.[0-9]+(-disk)?$ ]] || fail "$version is no kernel version like 6.12"
    fetch "$version"
    echo "$PWD/$store/$version"
done
