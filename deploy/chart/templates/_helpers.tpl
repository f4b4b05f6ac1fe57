{{- define "gpubus.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "gpubus.labels" -}}
app.kubernetes.io/part-of: gpubus
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What a container may do under Pod Security "restricted". */}}
{{- define "gpubus.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpubus.natsUrls" -}}
{{- if .Values.nats.urls -}}
{{ join "," .Values.nats.urls }}
{{- else -}}
{{- $scheme := ternary "tls" "nats" .Values.nats.tls -}}
{{ $scheme }}://gpubus-nats.{{ .Release.Namespace }}.svc:4222
{{- end -}}
{{- end }}

{{- define "gpubus.otlp" -}}
{{- if .Values.tracing.otlpEndpoint -}}
{{ .Values.tracing.otlpEndpoint }}
{{- else if .Values.tracing.jaeger -}}
http://gpubus-jaeger.{{ .Release.Namespace }}.svc:4318
{{- end -}}
{{- end }}

{{/* Environment that all services share. Takes (dict "root" $ "identity" "scheduler"). */}}
{{- define "gpubus.env" -}}
- {name: GPUBUS_NATS__URLS, value: {{ include "gpubus.natsUrls" .root | quote }}}
- {name: GPUBUS_NATS__REPLICAS, value: {{ .root.Values.nats.replicas | quote }}}
- {name: GPUBUS_HEALTH__HOST, value: "0.0.0.0"}
- {name: GPUBUS_HEALTH__PORT, value: "8080"}
- {name: GPUBUS_LOG__FORMAT, value: json}
{{- with include "gpubus.otlp" .root }}
- {name: GPUBUS_TELEMETRY__OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- if .identity }}
- {name: GPUBUS_NATS__IDENTITY, value: {{ .identity | quote }}}
- {name: GPUBUS_NATS__TOKEN_FILE, value: /var/run/gpubus/token}
{{- end }}
{{- if and .root.Values.nats.tls (not .root.Values.nats.urls) }}
- {name: GPUBUS_NATS__TLS_CA_FILE, value: /etc/gpubus/ca/ca.crt}
{{- end }}
{{- range $name, $value := .env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "gpubus.mounts" -}}
- {name: token, mountPath: /var/run/gpubus, readOnly: true}
{{- if and .Values.nats.tls (not .Values.nats.urls) }}
- {name: ca, mountPath: /etc/gpubus/ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "gpubus.volumes" -}}
- name: token
  projected:
    sources:
      - serviceAccountToken: {path: token, audience: gpubus, expirationSeconds: 3600}
{{- if and .Values.nats.tls (not .Values.nats.urls) }}
- name: ca
  configMap: {name: gpubus-ca}
{{- end }}
{{- end }}

{{- define "gpubus.probes" -}}
ports:
  - {name: health, containerPort: 8080}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
{{- end }}

{{/* A Deployment of one of our services. Takes (dict "root" $ "name" .. "module" .. "values" .. "identity" ..
     "automount" bool "env" dict "mounts" text "volumes" text). */}}
{{- define "gpubus.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: gpubus-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    app.kubernetes.io/name: gpubus-{{ .name }}
    {{- include "gpubus.labels" .root | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}
  selector:
    matchLabels: {app.kubernetes.io/name: gpubus-{{ .name }}}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: gpubus-{{ .name }}
        {{- include "gpubus.labels" .root | nindent 8 }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "8080"
    spec:
      serviceAccountName: gpubus-{{ .name }}
      automountServiceAccountToken: {{ .automount }}
      enableServiceLinks: false
      terminationGracePeriodSeconds: 10
      priorityClassName: system-cluster-critical
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{ toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector: {matchLabels: {app.kubernetes.io/name: gpubus-{{ .name }}}}
      containers:
        - name: {{ .name }}
          image: {{ include "gpubus.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: ["-m", {{ .module | quote }}]
          env:
            {{- include "gpubus.env" (dict "root" .root "identity" .identity "env" (merge (dict) .values.env .env)) | nindent 12 }}
          {{- include "gpubus.probes" .root | nindent 10 }}
          resources: {{ toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- include "gpubus.restricted" .root | nindent 12 }}
          volumeMounts:
            {{- include "gpubus.mounts" .root | nindent 12 }}
            - {name: tmp, mountPath: /tmp}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "gpubus.volumes" .root | nindent 8 }}
        - {name: tmp, emptyDir: {sizeLimit: 256Mi}}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: gpubus-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpubus.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app.kubernetes.io/name: gpubus-{{ .name }}}
{{- end }}

{{/* What a pod may ask by, without the domain; reconciler/annotations.py has the same list, and a test compares. */}}
{{- define "gpubus.askingKeys" -}}
card-count,share-milli,memory-mib,memory-milli,models,min-card-memory-mib,nvlink,affinity,anti-affinity,exclusion,gang,gang-size,gang-min,gang-within,gang-topology-key,priority,priority-class,expected-s,policy,traceparent,simulated-run-s
{{- end }}
