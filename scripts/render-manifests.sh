#!/usr/bin/env bash
# Renders the plain manifests of deploy/manifests from the chart, for those who use no Helm. `make lint-kube` checks that they are up to date.
# usage: render-manifests.sh [OUT]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-deploy/manifests}
helm=${HELM:-target/tools/bin/helm}

render() { # render FILE VALUES
    {
        echo "# Rendered by scripts/render-manifests.sh from deploy/helm/isotherm with ci/$2: change these."
        cat <<'NAMESPACE'
apiVersion: v1
kind: Namespace
metadata:
  name: isotherm
  labels:
    pod-security.kubernetes.io/enforce: privileged
NAMESPACE
        # The labels of Helm name a release that is not there.
        "$helm" template isotherm deploy/helm/isotherm --namespace isotherm --kube-version 1.31.0 -f "deploy/helm/isotherm/ci/$2" |
            sed -e '/^ *helm.sh\/chart:/d' -e '/^ *app.kubernetes.io\/managed-by:/d' -e '/^# Source:/d'
    } >"$out/$1"
}

mkdir -p "$out"
render isotherm.yaml least-values.yaml
render isotherm-monitoring.yaml monitoring-values.yaml
render isotherm-pods.yaml pods-values.yaml
