#!/bin/bash
# render.sh - deploy/gpubus.yaml from the chart, for `kubectl apply -f`. Prints to stdout with `-`.
# Needs helm >= 3.18 on PATH, or HELM=/path/to/helm (tests/cluster/build.sh builds one).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
helm=${HELM:-helm}
command -v "$helm" >/dev/null || { echo "render.sh: helm is missing; set HELM=/path/to/helm" >&2; exit 1; }
render() {
  cat <<'EOF'
# Generated from deploy/chart by deploy/render.sh; do not edit.
apiVersion: v1
kind: Namespace
metadata:
  name: gpubus-system
  labels:
    app.kubernetes.io/part-of: gpubus
    # The monitor needs hostPID and two host paths; everything else passes "restricted" (tests/cluster/test_chart.py).
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/warn: restricted
EOF
  "$helm" template gpubus "$here/chart" --namespace gpubus-system --kube-version 1.37.0 --include-crds | sed 's/[[:space:]]*$//'
}
case ${1:-} in
  -) render ;;
  "") render >"$here/gpubus.yaml.new" && mv "$here/gpubus.yaml.new" "$here/gpubus.yaml" ;;
  *) echo "usage: render.sh [-]" >&2; exit 2 ;;
esac
