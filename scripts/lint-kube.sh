#!/usr/bin/env bash
# Checks the chart and the plain manifests: `make lint-kube`. Needs helm and kubeconform (scripts/setup.sh kube), and no cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
chart=deploy/helm/isotherm
tools=target/tools/bin
helm="$tools/helm"
failed=0
fail() {
    echo "lint-kube: $1" >&2
    failed=1
}

# valid FOLDER...: whether the objects on standard input are valid by the schemas of these folders; others are ignored if $ignore is set.
valid() {
    local folder locations=()
    for folder in "$@"; do locations+=(-schema-location "deploy/schemas/$folder/{{.ResourceKind}}{{.KindSuffix}}.json"); done
    "$tools/kubeconform" -strict -summary "${locations[@]}" ${ignore:+-ignore-missing-schemas}
}

rendered() { # rendered FLAGS...
    "$helm" template isotherm "$chart" --namespace isotherm --kube-version 1.31.0 "$@"
}

for values in "" "$chart"/ci/*.yaml; do
    flags=(${values:+-f "$values"})
    name=${values:-the defaults}
    "$helm" lint --strict --quiet "$chart" "${flags[@]}" || fail "helm lint with $name"
    rendered "${flags[@]}" | valid v1.31.0 operator || fail "objects with $name are not valid"
    # Of what is valid, what this chart must not do: deploy/schemas/policy.
    rendered "${flags[@]}" | ignore=1 valid policy || fail "objects with $name break the rules of deploy/schemas/policy"
done

# Values that have to be refused. Each would be a mistake that nobody sees otherwise.
while read -r flag; do
    if rendered --set "$flag" >/dev/null 2>&1; then fail "--set $flag is accepted"; fi
done <<'REFUSED'
monitor.privileged=true
podMonitor.enabled=true
monitor.seLinuxOptions.typo=spc_t
monitor.appArmorProfile.type=RuntimeDefault
monitor.seccompProfile.type=Unconfined
monitor.seccompProfile.type=Localhost
serve.tokenSecret=
serve.tlsSecret=
serve.port=80
serve.address=10.0.0.1
serv.enabled=false
ship.enabled=true
ship.enabled=true,ship.to=file:///srv/heat
ship.spoolSize=1
kube.enabled=true
image.digest=sha256:1
settings=work = "id"
settings=action = "reclaim"
REFUSED

# The rules themselves have to catch what they are for.
while IFS='|' read -r from to; do
    rendered -f "$chart/ci/all-values.yaml" | sed "s|$from|$to|" | ignore=1 valid policy >/dev/null 2>&1 &&
        fail "deploy/schemas/policy accepts: $to"
done <<'BROKEN'
privileged: false|privileged: true
readOnlyRootFilesystem: true|readOnlyRootFilesystem: false
drop: \[ALL\]|drop: [NET_RAW]
hostPID: true|hostPID: true\n      hostNetwork: true
hostPID: true|hostPID: true\n      hostIPC: true
"SYSLOG"|"SYS_MODULE"
path: /sys/fs/cgroup|path: /
verbs: \[get, list, watch\]|verbs: [get, list, watch, patch]
BROKEN

fresh=$(mktemp -d)
trap 'rm -r "$fresh"' EXIT
HELM="$helm" scripts/render-manifests.sh "$fresh"
diff -r "$fresh" deploy/manifests || fail "deploy/manifests is not what the chart renders: run scripts/render-manifests.sh"
for file in deploy/manifests/*.yaml; do
    valid v1.31.0 operator <"$file" || fail "$file is not valid"
done

# The profile for AppArmor is parsed, and not loaded.
if command -v apparmor_parser >/dev/null; then
    apparmor_parser --skip-kernel-load --skip-cache --quiet deploy/profiles/isotherm-monitor.apparmor || fail "the AppArmor profile"
else
    echo "skipped: needs apparmor_parser (the AppArmor profile)"
fi
exit "$failed"
