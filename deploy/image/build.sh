#!/usr/bin/env bash
# Builds the image from what `make build build-serve build-ship build-kube` have built, and from Debian packages: `make image`.
# usage: build.sh [NAME:TAG]
#
# The base is nothing but the libraries that the programs link, the certificates that public stores are trusted by, and the files in which users have
# names. There is no shell. Packages come by apt from the release that this machine runs, since the programs were linked with its C library.
#
# environment: IMAGE_FORMAT docker (the default: it has a health check, which the OCI format does not) or oci; IMAGE_OUT a file to write the image to
# as an archive; BUILDAH_ISOLATION, STORAGE_DRIVER as for buildah (chroot and vfs work without a container runtime and in containers)
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=${1:-localhost/isotherm:$version}
programs=(isotherm isotherm-serve isotherm-ship isotherm-kube)
# What these programs link (checked below), and certificates.
packages=(libc6 libgcc-s1 libelf1 zlib1g ca-certificates)
user=47800

export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
fail() {
    echo "image: $1" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] || fail "files of the image belong to other users: run it as root"
command -v buildah >/dev/null || fail "buildah was not found: apt-get install buildah (scripts/setup.sh image)"
for program in "${programs[@]}"; do
    [ -x "target/release/$program" ] || fail "target/release/$program is missing: make build build-serve build-ship build-kube"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/usr/{lib,lib64,bin,sbin} "$work/debs"
# Debian 12 has the loader in /lib64, Debian 13 in /usr/lib64, and programs ask for the first.
for folder in lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
# apt would fetch as a user of its own, who cannot write to a folder of ours.
(cd "$work/debs" && apt-get download -q -o APT::Sandbox::User=root "${packages[@]}" >/dev/null) || fail "packages could not be fetched: ${packages[*]}"
for package in "$work"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory "$root"
done
# Licences stay; documentation, conversions of character sets and locales go.
find "$root/usr/share/doc" -mindepth 2 -type f ! -name copyright -delete
rm -rf "$root"/usr/share/{man,lintian,locale,i18n,bug} "$root"/usr/{sbin,bin} "$root"/{sbin,bin} \
    "$root"/usr/lib/*/{gconv,audit} "$root"/usr/lib/locale "$root"/etc/ld.so.conf.d

# As update-ca-certificates does.
mkdir -p "$root/etc/ssl/certs"
cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root/usr/share/ca-certificates"
[ -s "$root/etc/ssl/certs/ca-certificates.crt" ] || fail "ca-certificates has no certificates"

printf '%s\n' 'root:x:0:0:root:/:/nonexistent' "isotherm:x:$user:$user:isotherm:/:/nonexistent" >"$root/etc/passwd"
printf '%s\n' 'root:x:0:' "isotherm:x:$user:" >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
: >"$root/etc/machine-id"
install -d "$root"/{proc,sys,dev,run,tmp,etc/isotherm,host/sys/fs/cgroup,usr/bin,usr/share/doc/isotherm}
# For the user of the image and for root without CAP_DAC_OVERRIDE; volumes take their places in a cluster.
install -d "$root"/run/{isotherm,isotherm-stream,isotherm-kube}
chmod 1777 "$root/tmp" "$root"/run/isotherm*
install -d -o "$user" -g "$user" -m 0750 "$root"/var/lib/isotherm
cp LICENSE-APACHE LICENSE-MIT "$root/usr/share/doc/isotherm/"
for program in "${programs[@]}"; do
    # Line tables are four fifths of a program. Names of functions stay, for backtraces.
    objcopy --strip-debug "target/release/$program" "$root/usr/bin/$program"
    chmod 755 "$root/usr/bin/$program"
    linked=$(chroot "$root" /lib64/ld-linux-x86-64.so.2 --list "/usr/bin/$program" 2>&1) || fail "$program does not load in the image: $linked"
    ! grep 'not found' <<<"$linked" || fail "$program needs what the image lacks"
done
# Where `isotherm serve` finds it, too.
install -d "$root/usr/libexec/isotherm"
ln -s ../../bin/isotherm-serve "$root/usr/libexec/isotherm/isotherm-serve"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

container=$(buildah from --format "${IMAGE_FORMAT:-docker}" scratch)
trap 'buildah rm "$container" >/dev/null; rm -rf "$work"' EXIT
buildah copy --quiet "$container" "$root/" / >/dev/null
buildah config \
    --user "$user:$user" --workingdir / --stop-signal SIGTERM \
    --env PATH=/usr/bin --env ISOTHERM_RUNTIME_DIR=/run/isotherm \
    --entrypoint '["/usr/bin/isotherm"]' --cmd '--help' \
    --label org.opencontainers.image.title=Isotherm \
    --label org.opencontainers.image.description="Which memory is hot: monitor, metrics server, shipper, and schemes for pods" \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.revision="$(git rev-parse HEAD)" \
    --label org.opencontainers.image.licenses="Apache-2.0 OR MIT" \
    "$container"
if [ "${IMAGE_FORMAT:-docker}" = docker ]; then
    # A random name otherwise.
    buildah config --hostname isotherm "$container"
    # Of `isotherm run` with that socket. Programs without a socket have no state of health: pass --no-healthcheck for these.
    buildah config --healthcheck 'CMD /usr/bin/isotherm status --json --socket /run/isotherm/control.sock' \
        --healthcheck-interval 30s --healthcheck-timeout 10s --healthcheck-start-period 60s --healthcheck-retries 3 "$container"
fi
buildah commit --quiet --format "${IMAGE_FORMAT:-docker}" --timestamp "$SOURCE_DATE_EPOCH" "$container" "$name" >/dev/null
[ -z "${IMAGE_OUT:-}" ] || buildah push --quiet "$name" "${IMAGE_FORMAT:-docker}-archive:$IMAGE_OUT:$name"
echo "image: $name, $(du -sh --apparent-size "$root" | cut -f 1) of files, programs $(du -ch --apparent-size "$root"/usr/bin/* | tail -n 1 | cut -f 1)"
