#!/usr/bin/env bash
# Boots Debian 12 with systemd under QEMU, and runs one script in it, as root and as a systemd unit.
#
# usage: debian.sh [OPTION]... -- SCRIPT [ARGUMENT]...
#        debian.sh [OPTION]... --shell
#        debian.sh --image        only makes the image, and prints its path
#
# Options are those of lab/boot.sh; the kernel is 6.1 if none is named. --bring FILE brings a file: under /run/lab, by its name. SCRIPT
# is brought there, too. Its standard output and error are merged into our standard output. --with "PACKAGE..." adds packages of Debian's
# to the image.
#
# examples: lab/debian.sh --bring target/dist/isotherm_0.1.0_amd64.deb -- lab/debian/package-test.sh
#           lab/debian.sh --bring target/release/isotherm --shell
#
# The image is made once from the packages below. Guests write to temporary copies of it. There is no network but loopback.
#
# exit status: that of SCRIPT; 124 time limit reached; 125 the guest ended without an exit status; 2 wrong usage
set -euo pipefail
shopt -s inherit_errexit
lab=$(cd "$(dirname "$0")" && pwd)

# redis-server is what isotherm works on, curl scrapes metrics, jq reads what isotherm prints, libelf1 is what packages depend on,
# and crun runs containers.
packages=(systemd systemd-sysv dbus procps redis-server redis-tools curl jq libelf1 crun)
# MiB, of which packages take about a third, or half of it with a JVM. The rest is for what is installed in the guest; unwritten blocks take
# no room.
size=1536

# In a name space in which we are root, or as root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else unshare --user --map-auto --map-root-user "$@"; fi
}

image() { # prints the path of the image
    local tar out
    tar=$("$lab/debian/root.sh" bookworm "${packages[@]}")
    out=${tar%.tar}.ext4
    if [ ! -f "$out" ]; then
        # shellcheck disable=SC2016 # of the inner shell
        as_root bash -euc '
            root=$(mktemp -d) && trap "rm -rf \"$root\"" EXIT
            tar -x --numeric-owner -f "$1" -C "$root"
            # With an id of its own the system has been started before: the first start would enable units by their presets.
            echo 69736f746865726d2d6c61622d303132 >"$root/etc/machine-id"
            echo isotherm-lab >"$root/etc/hostname"
            printf "127.0.0.1 localhost isotherm-lab\n::1 localhost\n" >"$root/etc/hosts"
            rm -f "$root/etc/resolv.conf"
            # Work in the background that has no use in a guest of some minutes, and takes its processors.
            mkdir -p "$root/dev" "$root/etc/systemd/system"
            for unit in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim systemd-tmpfiles-clean; do
                ln -sf /dev/null "$root/etc/systemd/system/$unit.timer"
            done
            mkfs.ext4 -q -F -O ^has_journal -d "$root" "$2.part" "$3"
            mv "$2.part" "$2"' image "$tar" "$out" "${size}M" >&2
    fi
    echo "$out"
}

options=() shell='' only_image=''
while [ $# -gt 0 ]; do
    case $1 in
    --bring) options+=(--bring "${2%%=*}=/lab/$(basename "${2#*=}")") && shift 2 ;;
    --with)
        read -ra more <<<"${2:?"debian: --with takes a value"}"
        packages+=("${more[@]}")
        shift 2
        ;;
    --shell) shell=yes && shift ;;
    --image) only_image=yes && shift ;;
    --help | -h) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    --) shift && break ;;
    --bare | --in-turn | --skip-idle) options+=("$1") && shift ;;
    --*) options+=("$1" "${2:?"debian: $1 takes a value"}") && shift 2 ;;
    *) break ;;
    esac
done
[ -n "$shell$only_image" ] || [ $# -gt 0 ] || {
    echo "debian: no script was given; lab/debian.sh --help shows the usage" >&2
    exit 2
}
path=$(image)
if [ -n "$only_image" ]; then
    echo "$path"
    exit
fi
command=("$lab/boot.sh" --kernel 6.1 --memory 1536 --limit 900 --root "$path" "${options[@]}")
[ -z "$shell" ] || exec "${command[@]}" --shell
script=$1
shift
exec "${command[@]}" --bring "$script=/lab/$(basename "$script")" -- bash "/run/lab/$(basename "$script")" "$@"
