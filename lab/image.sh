#!/usr/bin/env bash
# Runs the image in containers of crun, in a Debian 12 guest with systemd, and prints the result of each check: `make lab-image`.
# usage: image.sh [--kernel 6.1|6.12] [--manifest FILE] [--image NAME:TAG] [PART...]
#
#   --manifest FILE   what the containers are made of: the DaemonSet and the settings in it (deploy/manifests/isotherm-pods.yaml)
#   --image NAME:TAG  what `make image` has built (localhost/isotherm:VERSION)
#   PART              image, pod, calls, doctor, namespace (all, in this order); see lab/debian/image-test.sh
#
# There is no kubelet: lab/debian/pod-to-oci.jq makes of a container of the manifest what a runtime would be given for it.
# The output of the guest is kept in target/lab/image.log, and its kernel's and systemd's messages in target/lab/image.kernel.log.
#
# exit status: 0 every check was ok; 1 a check failed, or the guest ended early; 2 wrong usage
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lab/debian/guest.sh
. lab/debian/guest.sh

kernel=6.1 manifest=deploy/manifests/isotherm-pods.yaml image=localhost/isotherm:$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
take_options "kernel manifest image" "$@"
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
command -v buildah >/dev/null || fail "buildah was not found: run scripts/setup.sh image"

work=$(mktemp -d)
container=''
cleanup() {
    [ -z "$container" ] || buildah rm "$container" >/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

# Files of the image with their owners, and how it says that it is run.
unpack() {
    container=$(buildah from "$image") || fail "there is no image $image: run make image"
    buildah inspect --type image "$image" | jq .Docker.config >"$work/image.json"
    tar --create --numeric-owner --file "$work/image.tar" --directory "$(buildah mount "$container")" .
}

# The pod of the DaemonSet, and its settings, as JSON.
read_manifest() {
    python3 - "$manifest" >"$work/pod.json" <<'PYTHON'
import json, sys, yaml
kinds = {each["kind"]: each for each in yaml.safe_load_all(open(sys.argv[1])) if each}
json.dump({"spec": kinds["DaemonSet"]["spec"]["template"]["spec"], "settings": kinds["ConfigMap"]["data"]}, sys.stdout)
PYTHON
}

unpack
read_manifest
echo "guest image (Debian 12, kernel $kernel): $image as in $manifest"
in_guest image "$kernel" --bring "$work/image.tar" --bring "$work/image.json" --bring "$work/pod.json" \
    --bring lab/debian/pod-to-oci.jq --bring deploy/profiles/isotherm-seccomp.json -- lab/debian/image-test.sh "${parts[@]}"
