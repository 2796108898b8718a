#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Renders daemonset.yaml and podmonitor.yaml from the Helm chart, into FOLDER or next to this script, for kubectl apply.
#
#   tools/packaging/deploy/manifests.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")"
FOLDER=${1:-.}
HELM=$(../../deps.sh helm)/helm

# Without what only releases of Helm need: some labels, and the names of the templates.
render() {
	"$HELM" template memtrace-bpf helm/memtrace-bpf --namespace memtrace-bpf --kube-version 1.30 "$@" |
		sed -e '/^# Source: /d' -e '/helm\.sh\/chart:/d' -e '/app\.kubernetes\.io\/\(managed-by\|instance\):/d' | sed '1{/^---$/d}'
}

{
	cat <<'TEXT'
# memtrace-bpf serve on each node with GPUs. It can trace each PyTorch process of the node.
#
#   kubectl create namespace memtrace-bpf
#   kubectl label namespace memtrace-bpf pod-security.kubernetes.io/enforce=privileged
#   kubectl -n memtrace-bpf create secret generic memtrace-bpf --from-file=token=<(head -c 32 /dev/urandom | base64)
#   kubectl apply -f tools/packaging/deploy/daemonset.yaml
#
# The image is that of "make STATIC=1 image". See docs/guide/containers.md.
# Made from the Helm chart by "make manifests": change the chart.
TEXT
	render
} >"$FOLDER/daemonset.yaml"
{
	echo '# Made from the Helm chart by "make manifests": change the chart.'
	render --set podMonitor.enabled=true --show-only templates/podmonitor.yaml
} >"$FOLDER/podmonitor.yaml"
