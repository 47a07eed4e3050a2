{{/* What the objects of a job have in common. */}}

{{- define "braid.labels" -}}
app.kubernetes.io/name: braid
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "braid.selector" -}}
app.kubernetes.io/name: braid
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of the object that a queue looks at. */}}
{{- define "braid.queueLabels" -}}
{{- with .Values.queue.kueue }}
kueue.x-k8s.io/queue-name: {{ . }}
{{- end }}
{{- end }}

{{- define "braid.image" -}}
{{- $mpi := eq .Values.kind "mpijob" -}}
{{- $name := printf "braid%s%s" (ternary "-mpi" "" $mpi) (ternary "-cuda" "" (gt (int .Values.gpus) 0)) -}}
{{ .Values.image.repository | default $name }}:{{ .Values.image.tag }}
{{- end }}

{{/* Metadata of a pod. dict "top" $ "component" "worker" */}}
{{- define "braid.podMetadata" -}}
labels:
  {{- include "braid.selector" .top | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .top.Values.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  sidecar.istio.io/inject: "false"
  {{- if and .top.Values.queue.volcano (has .top.Values.kind (list "plain" "jobset")) }}
  scheduling.volcano.sh/queue-name: {{ .top.Values.queue.volcano }}
  {{- end }}
{{- end }}

{{/* Where a pod may run, and as whom. */}}
{{- define "braid.podPlace" -}}
automountServiceAccountToken: false
{{- with .Values.serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
# SIGTERM makes a checkpoint: longer than the slowest one takes.
terminationGracePeriodSeconds: {{ .Values.graceSeconds }}
{{- if and .Values.queue.volcano (has .Values.kind (list "plain" "jobset")) }}
schedulerName: volcano
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "braid.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* dict "top" $ "card" true: a pod that computes on a card. */}}
{{- define "braid.resources" -}}
{{- $given := ternary .top.Values.resources .top.Values.serverResources .computes -}}
{{- if $given }}
{{- toYaml $given }}
{{- else if .card -}}
requests:
  cpu: "4"
  memory: 8Gi
limits:
  memory: 16Gi
  nvidia.com/gpu: {{ .top.Values.gpus }}
{{- else -}}
requests:
  cpu: "1"
  memory: 1Gi
limits:
  memory: 2Gi
{{- end }}
{{- end }}

{{/* dict "top" $ "card" true: the pod talks to the node's MPS daemon, through the node's own /dev/shm. */}}
{{- define "braid.sharesCard" -}}
{{- if and .card .top.Values.mps.pipe }}yes{{ end -}}
{{- end }}

{{/* dict "top" $ "card" true */}}
{{- define "braid.mounts" -}}
{{- $shares := include "braid.sharesCard" . -}}
{{- with .top -}}
volumeMounts:
  - name: job
    mountPath: /etc/braid
    readOnly: true
  - name: checkpoints
    mountPath: /var/lib/braid
    {{- if .Values.checkpoints.claim }}
    subPath: {{ .Release.Name }}
    {{- end }}
  {{- if not $shares }}
  - name: shm
    mountPath: /dev/shm
  {{- end }}
  - name: tmp
    mountPath: /tmp
  {{- if .Values.data.volume }}
  - name: data
    mountPath: {{ .Values.data.path }}
    readOnly: true
  {{- end }}
  {{- if $shares }}
  # Where CUDA looks for the daemon.
  - name: mps
    mountPath: /tmp/nvidia-mps
  {{- end }}
{{- end }}
{{- end }}

{{/* dict "top" $ "card" true */}}
{{- define "braid.volumes" -}}
volumes:
  - name: job
    configMap:
      name: {{ .top.Release.Name }}-job
  - name: checkpoints
    persistentVolumeClaim:
      claimName: {{ .top.Values.checkpoints.claim | default (printf "%s-checkpoints" .top.Release.Name) }}
  {{- if not (include "braid.sharesCard" .) }}
  # The runtime's own is 64 MiB. Counts against the memory limit.
  - name: shm
    emptyDir:
      medium: Memory
      sizeLimit: {{ ternary "2Gi" "256Mi" .card }}
  {{- end }}
  - name: tmp
    emptyDir: {}
  {{- with .top.Values.data.volume }}
  - name: data
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if include "braid.sharesCard" . }}
  - name: mps
    hostPath:
      path: {{ .top.Values.mps.pipe }}
      type: Directory
  {{- end }}
{{- end }}

{{- define "braid.variables" -}}
- name: BRAID_HTTP
  value: 0.0.0.0:8080
- name: BRAID_DATA
  value: {{ .Values.data.path }}
{{- if ne .Values.kind "mpijob" }}
- name: BRAID_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .Values.token.secret }}
      key: {{ .Values.token.key }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The pod of a task that runs braid itself. dict "top" $ "component" "ps" "container" "braid" "port" "grpc" */}}
{{- define "braid.taskPod" -}}
{{- $computes := ne .component "ps" -}}
{{- $card := and $computes (gt (int .top.Values.gpus) 0) -}}
{{- include "braid.podPlace" .top }}
{{- if include "braid.sharesCard" (dict "top" .top "card" $card) }}
hostIPC: true
{{- end }}
containers:
  - name: {{ .container }}
    image: {{ include "braid.image" .top }}
    {{- with .top.Values.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    args: [train, --job, /etc/braid/job.pbtxt, --resume]
    env:
      {{- if .cluster }}
      - name: TASK_INDEX
        valueFrom:
          fieldRef:
            fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
      - name: TF_CONFIG
        value: {{ printf "{\"cluster\": %s, \"task\": {\"type\": %q, \"index\": \"$(TASK_INDEX)\"}}" .cluster .component | quote }}
      {{- end }}
      {{- include "braid.variables" .top | nindent 6 }}
    {{- with .top.Values.envFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - name: {{ .port }}
        containerPort: 2222
      - name: http
        containerPort: 8080
    startupProbe:
      httpGet:
        path: /healthz
        port: http
      periodSeconds: 2
      failureThreshold: 60
    readinessProbe:
      httpGet:
        path: /readyz
        port: http
      periodSeconds: 5
      timeoutSeconds: 2
    livenessProbe:
      httpGet:
        path: /healthz
        port: http
      periodSeconds: 20
      timeoutSeconds: 5
      failureThreshold: 6
    resources:
      {{- include "braid.resources" (dict "top" .top "computes" $computes "card" $card) | nindent 6 }}
    {{- include "braid.containerSecurity" . | nindent 4 }}
    {{- include "braid.mounts" (dict "top" .top "card" $card) | nindent 4 }}
{{ include "braid.volumes" (dict "top" .top "card" $card) }}
{{- end }}

{{/* TF_CONFIG's cluster. dict "top" $ "form" "%s-%s-%d.%s-%s:2222" */}}
{{- define "braid.cluster" -}}
{{- $top := .top -}}
{{- $jobs := list -}}
{{- range $job, $count := dict "ps" (int $top.Values.servers) "worker" (int $top.Values.workers) -}}
{{- $addresses := list -}}
{{- range $i := until $count -}}
{{- if eq $top.Values.kind "jobset" -}}
{{- $addresses = append $addresses (printf "\"%s-%s-0-%d.%s:2222\"" $top.Release.Name $job $i $top.Release.Name) -}}
{{- else -}}
{{- $addresses = append $addresses (printf "\"%s-%s-%d.%s-%s:2222\"" $top.Release.Name $job $i $top.Release.Name $job) -}}
{{- end -}}
{{- end -}}
{{- if $count -}}{{- $jobs = append $jobs (printf "\"%s\": [%s]" $job (join ", " $addresses)) -}}{{- end -}}
{{- end -}}
{ {{- join ", " $jobs -}} }
{{- end }}

{{/* Exit codes 1 and 2 end a Job: wrong input. */}}
{{- define "braid.failurePolicy" -}}
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: braid
        operator: In
        values: [1, 2]
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
{{- end }}
