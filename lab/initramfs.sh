#!/usr/bin/env bash
# Packs an initramfs: busybox, our init, and files with the libraries that they need.
# usage: initramfs.sh OUT FILE[=PLACE]...      PLACE is the path of FILE in the guest (default: its path on this machine)
#
# A dynamically linked program is packed with its loader and libraries, so that guests run the very files that `cargo test`
# built here and nothing is linked a second time. A static program works as well. The interpreter of a script is not packed with it.
set -euo pipefail
lab=$(cd "$(dirname "$0")" && pwd)
busybox=$lab/../target/lab/packages/busybox/bin/busybox

fail() {
    echo "initramfs: $1" >&2
    exit 1
}

[ $# -ge 1 ] || fail "usage: lab/initramfs.sh OUT FILE[=PLACE]..."
[ -x "$busybox" ] || fail "$busybox is missing: run lab/kernels.sh 6.1 first"
out=$1
shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

is_elf() {
    [ "$(head -c 4 "$1" | tr -d '\0')" = $'\x7fELF' ]
}

put() { # put FILE PLACE: copies once; follows links, because the guest lacks what they point to
    local place=$root$2
    [ ! -e "$place" ] || return 0
    mkdir -p "$(dirname "$place")"
    cp -L "$1" "$place" || fail "cannot copy $1"
    # Debug information is most of a test binary, and nothing in a guest reads it.
    if is_elf "$place"; then strip --strip-debug "$place" 2>/dev/null || true; fi
}

libraries() { # libraries FILE: prints every shared object that the loader would load, and the loader
    { ldd "$1" 2>/dev/null || true; } | awk '/not found/ {exit 3} $2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}'
}

mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,lab,etc,lib64}
put "$busybox" /bin/busybox
# Not the applets that tests look for and that lack what the tests need.
for applet in $("$busybox" --list | grep -vxE 'busybox|bash|setpriv|script|unshare'); do
    [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
done
ln -s ../../bin/env "$root/usr/bin/env"
cp "$lab/init" "$root/init"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'nobody:x:65534:65534:nobody:/:/bin/sh' >>"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"

for item in "$@"; do
    file=${item%%=*}
    place=${item#*=}
    [ -f "$file" ] || fail "there is no file $file to bring along"
    [[ $place = /* ]] || place=$(realpath "$place")
    rm -f "$root$place" # an applet of busybox
    put "$file" "$place"
    is_elf "$file" || continue
    needed=$(libraries "$file") || fail "ldd $file: a library was not found; is it built for another machine?"
    for library in $needed; do
        put "$library" "$library"
    done
done
chmod -R u+rwX,go+rX "$root"

mkdir -p "$(dirname "$out")"
out=$(realpath "$out")
(cd "$root" && find . | "$busybox" cpio -o -H newc -R 0:0 2>/dev/null >"$out.part")
mv "$out.part" "$out"
