{{- define "memtrace.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains "memtrace-bpf" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-memtrace-bpf" (.Release.Name | trunc 50 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* What the selectors name. It must not change: a DaemonSet's selector cannot. */}}
{{- define "memtrace.selector" -}}
app.kubernetes.io/name: memtrace-bpf
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "memtrace.labels" -}}
{{ include "memtrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "memtrace.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "memtrace.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "memtrace.secret" -}}
{{ .Values.token.secretName | default (include "memtrace.name" .) }}
{{- end }}
