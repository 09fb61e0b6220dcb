{{/* JSON in one line, which YAML reads as the same whatever text is in it: what JSON may hold as it stands and YAML may
  not is escaped. toYaml gives nothing at all for such text, and 8.64e+07 for a large number. */}}
{{- define "tf-launcher.json" -}}
{{- $text := toJson . -}}
{{- range $code := concat (untilStep 127 160 1) (list 0xfeff 0xfffe 0xffff) -}}
{{- $text = replace (printf "%c" $code) (printf "\\u%04x" $code) $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* A map of texts, a line each. */}}
{{- define "tf-launcher.texts" -}}
{{- range $key, $value := . }}
{{ include "tf-launcher.json" $key }}: {{ include "tf-launcher.json" $value }}
{{- end }}
{{- end -}}

{{/* Names are cut to what a label's value holds. */}}
{{- define "tf-launcher.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimAll "-." -}}
{{- end -}}

{{- define "tf-launcher.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $both .Values.fullnameOverride | trunc 63 | trimAll "-." -}}
{{- end -}}

{{- define "tf-launcher.controller" -}}
{{- printf "%s-controller" (include "tf-launcher.fullname" . | trunc 43 | trimAll "-.") -}}
{{- end -}}

{{- define "tf-launcher.serviceAccountName" -}}
{{- default (include "tf-launcher.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "tf-launcher.run" -}}
{{- default .Release.Name .Values.metadata.name -}}
{{- end -}}

{{- define "tf-launcher.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tf-launcher.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: {{ .component | default "launcher" }}
{{- end -}}

{{- define "tf-launcher.labels" -}}
{{- $own := dict "app.kubernetes.io/managed-by" .Release.Service "app.kubernetes.io/part-of" "tf-launcher" -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | set $own "helm.sh/chart" -}}
{{- mergeOverwrite (deepCopy .Values.commonLabels) $own (include "tf-launcher.selectorLabels" . | fromYaml) | include "tf-launcher.texts" | trim -}}
{{- end -}}

{{/* The metadata of an object of the chart. The list: the context, its name, annotations of its own. A `namespace` in the
  context stands for the release's; an empty one is that of an object which is in none. */}}
{{- define "tf-launcher.metadata" -}}
{{- $context := index . 0 -}}
name: {{ index . 1 | quote }}
{{- with ternary $context.namespace $context.Release.Namespace (hasKey $context "namespace") }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "tf-launcher.labels" $context | nindent 2 }}
{{- with merge (deepCopy (index . 2)) $context.Values.commonAnnotations }}
annotations:
  {{- include "tf-launcher.texts" . | trim | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The cluster.yaml. */}}
{{- define "tf-launcher.document" -}}
{{- $metadata := merge (dict "name" (include "tf-launcher.run" .)) .Values.metadata -}}
{{- dict "apiVersion" .Values.apiVersion "kind" .Values.kind "metadata" $metadata "spec" .Values.spec | include "tf-launcher.json" -}}
{{- end -}}

{{/* Where the launcher finds the cluster.yaml, its program beside it. A ConfigMap's folders are links at the top of
  its volume, and real below it. */}}
{{- define "tf-launcher.folder" -}}
{{- ternary "" "run/" (ne .Values.program.existingConfigMap "") -}}
{{- end -}}

{{- define "tf-launcher.image" -}}
{{- with .Values.image -}}
{{- .repository -}}{{- ternary (printf "@%s" .digest) (printf ":%s" .tag) (ne .digest "") -}}
{{- end -}}
{{- end -}}

{{/* What the launcher's pods have in common. The list: the context, the container's command line. */}}
{{- define "tf-launcher.pod" -}}
{{- $context := index . 0 -}}
{{- with $context.Values -}}
restartPolicy: Never
serviceAccountName: {{ include "tf-launcher.serviceAccountName" $context | quote }}
# To speak to the API server is what it is for.
automountServiceAccountToken: true
enableServiceLinks: false
# Nothing is lost with it: the run goes on by itself.
terminationGracePeriodSeconds: 10
securityContext: {{ include "tf-launcher.json" .podSecurityContext }}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $context.Values $field }}
{{ $field }}: {{ include "tf-launcher.json" . }}
{{- end }}
{{- end }}
containers:
  - name: launcher
    image: {{ include "tf-launcher.image" $context | quote }}
    imagePullPolicy: {{ .image.pullPolicy }}
    args: {{ index $ 1 | include "tf-launcher.json" }}
    resources: {{ include "tf-launcher.json" .resources }}
    securityContext: {{ include "tf-launcher.json" .securityContext }}
    # So that `kubectl describe` shows why it has failed.
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts:
      - {name: cluster, mountPath: /etc/tf-launcher, readOnly: true}
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: tmp
    emptyDir: {}
  - name: cluster
    projected:
      sources:
        - configMap:
            name: {{ include "tf-launcher.fullname" $context | quote }}
            items:
              - {key: cluster.json, path: {{ printf "%scluster.json" (include "tf-launcher.folder" $context) | include "tf-launcher.json" }}}
              {{- range $index, $path := .program.files | default dict | keys | sortAlpha }}
              - {key: f{{ $index }}, path: {{ printf "%s%s" (include "tf-launcher.folder" $context) (clean $path) | include "tf-launcher.json" }}}
              {{- end }}
        {{- with .program.existingConfigMap }}
        - configMap:
            name: {{ include "tf-launcher.json" . }}
        {{- end }}
{{- end -}}
{{- end -}}

{{/* A Job's template cannot be changed, so another template, another cluster.yaml or another program is another Job. */}}
{{- define "tf-launcher.job" -}}
{{- $template := list (include "tf-launcher.pod" (list . list)) .Values.podLabels .Values.podAnnotations -}}
{{- $digest := list (include "tf-launcher.document" .) .Values.program.files $template | toJson | sha256sum | trunc 10 -}}
{{- printf "%s-%s" (include "tf-launcher.fullname" . | trunc 52 | trimAll "-.") $digest -}}
{{- end -}}
