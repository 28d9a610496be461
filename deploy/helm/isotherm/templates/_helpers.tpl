{{- define "isotherm.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "isotherm.selector" -}}
app.kubernetes.io/name: isotherm
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "isotherm.labels" -}}
{{ include "isotherm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "isotherm.account" -}}
{{- .Values.serviceAccount.name | default (include "isotherm.name" .) -}}
{{- end -}}

{{- define "isotherm.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "isotherm.streams" -}}
{{- if or .Values.serve.enabled .Values.ship.enabled }}true{{ end -}}
{{- end -}}

{{/* What the monitor uses, and no more: docs/reference/platform.md has what each is for. */}}
{{- define "isotherm.capabilities" -}}
{{- $capabilities := list "BPF" "PERFMON" "SYS_PTRACE" "SYS_NICE" "SYSLOG" -}}
{{- if .Values.monitor.pagemap }}{{ $capabilities = append $capabilities "DAC_READ_SEARCH" }}{{ end -}}
{{- if .Values.monitor.clearRefs }}{{ $capabilities = append $capabilities "DAC_OVERRIDE" }}{{ end -}}
{{- if .Values.monitor.frameNumbers }}{{ $capabilities = append $capabilities "SYS_ADMIN" }}{{ end -}}
{{- toJson $capabilities -}}
{{- end -}}

{{/* For all containers but the monitor. */}}
{{- define "isotherm.unprivileged" -}}
runAsNonRoot: true
runAsUser: 47800
runAsGroup: 47800
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Values that contradict each other stop the installation, with what to do. */}}
{{- define "isotherm.check" -}}
{{- if and .Values.serve.enabled (not .Values.serve.tokenSecret) }}
{{- fail "serve.tokenSecret: name a Secret with the key `token`, or set serve.enabled=false" }}
{{- end }}
{{- if and .Values.serve.enabled (not .Values.serve.tlsSecret) (not .Values.serve.insecure) }}
{{- fail "serve.tlsSecret: name a Secret of type kubernetes.io/tls, or set serve.insecure=true" }}
{{- end }}
{{- if and .Values.ship.enabled (not .Values.ship.to) }}
{{- fail "ship.to: name a store, such as s3://fleet/heat" }}
{{- end }}
{{- if and .Values.ship.enabled (not (regexMatch "^(s3|gs|az)://" .Values.ship.to)) }}
{{- fail "ship.to: the pod has no folder that outlives it: name a bucket, such as s3://fleet/heat" }}
{{- end }}
{{- if and .Values.podMonitor.enabled (not .Values.serve.enabled) }}
{{- fail "podMonitor.enabled takes serve.enabled=true" }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serve.tlsSecret (not .Values.podMonitor.serverName) }}
{{- fail "podMonitor.serverName: name what the certificate of serve.tlsSecret is for; Prometheus connects by the addresses of pods, which are in no certificate" }}
{{- end }}
{{- if regexMatch "(?m)^\\s*action\\s*=\\s*[\"']reclaim[\"']" .Values.settings }}
{{- fail "settings have a [[scheme]] with action = \"reclaim\", which writes to cgroups: they are mounted read-only" }}
{{- end }}
{{- if and .Values.kube.enabled (not (regexMatch "(?m)^\\s*assigned\\s*=\\s*true" .Values.settings)) }}
{{- fail "kube.enabled: settings have no [[scheme]] with assigned = true, so pods may ask for nothing" }}
{{- end }}
{{- if and (not .Values.kube.enabled) (regexMatch "(?m)^\\s*assigned\\s*=\\s*true" .Values.settings) }}
{{- fail "settings have a [[scheme]] with assigned = true, which takes kube.enabled=true" }}
{{- end }}
{{- $profile := .Values.monitor.seccompProfile }}
{{- if and (eq $profile.type "Localhost") (not $profile.localhostProfile) }}
{{- fail "monitor.seccompProfile.localhostProfile: name the profile" }}
{{- end }}
{{- end -}}
