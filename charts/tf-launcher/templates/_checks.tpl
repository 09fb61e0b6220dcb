{{/* What the schema cannot say, and is known before anything is made. */}}
{{- define "tf-launcher.check" -}}
{{- $run := include "tf-launcher.run" . -}}
{{- $spec := .Values.spec | default dict -}}
{{- if not (or $spec .Values.controller.enabled .Values.dashboard.enabled) -}}
{{- fail "spec is missing: give your cluster.yaml, as in `helm install NAME tf-launcher -f cluster.yaml`" -}}
{{- end -}}
{{- with .Values.metadata.namespace -}}
{{- if ne . $.Release.Namespace -}}
{{- fail (printf "metadata.namespace is %s, and the release's namespace is %s: leave it out of the file, or install with `--namespace %s`" . $.Release.Namespace .) -}}
{{- end -}}
{{- end -}}
{{- if and $spec (not (regexMatch "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$" $run)) -}}
{{- fail (printf "metadata.name, or the release's name in its place, is %s: expected lower-case letters, digits and '-', beginning with a letter, at most 63 characters" $run) -}}
{{- end -}}
{{- range $role := list "chief" "worker" "ps" "evaluator" -}}
{{- $given := get $spec $role -}}
{{- if kindIs "map" $given -}}
{{- $last := sub (get $given "replicas" | default 1 | int) 1 -}}
{{- $host := printf "%s-%s-%d" $run $role $last -}}
{{- if gt (len $host) 63 -}}
{{- fail (printf "the pod %s would have a name of %d characters, and a hostname has at most 63: shorten metadata.name, which is %s, by %d" $host (len $host) $run (sub (len $host) 63)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false: name the account that is to be used, in serviceAccount.name" -}}
{{- end -}}
{{- include "tf-launcher.checkProgram" . -}}
{{- end -}}

{{- define "tf-launcher.checkProgram" -}}
{{- $program := (.Values.spec | default dict).program | default dict -}}
{{- $field := ternary "script" "source" (and (not $program.source) (not (empty $program.script))) -}}
{{- $source := get $program $field -}}
{{- $files := .Values.program.files | default dict -}}
{{- if and $files .Values.program.existingConfigMap -}}
{{- fail "program.files and program.existingConfigMap are both given: give one" -}}
{{- end -}}
{{- if and (not $source) (or $files .Values.program.existingConfigMap) -}}
{{- fail (printf "program.%s is given, and spec.program.source does not name it: such as `source: ./train.py`" (ternary "files" "existingConfigMap" (not (empty $files)))) -}}
{{- end -}}
{{- if and $source (kindIs "string" $source) -}}
{{- $path := clean $source -}}
{{- if or (isAbs $path) (hasPrefix ".." $path) -}}
{{- fail (printf "spec.program.%s is %s: expected a path below the cluster.yaml's folder, where the chart puts program.files" $field $source) -}}
{{- end -}}
{{- $found := list -}}
{{- range $name := keys $files | sortAlpha -}}
{{- $one := clean $name -}}
{{- if or (isAbs $one) (hasPrefix ".." $one) (eq $one "cluster.json") -}}
{{- fail (printf "program.files has %s: expected a path below the cluster.yaml's folder, such as train.py or src/train.py" $name) -}}
{{- end -}}
{{- if or (eq $path ".") (eq $one $path) (hasPrefix (printf "%s/" $path) $one) -}}
{{- $found = append $found $name -}}
{{- end -}}
{{- end -}}
{{- if not (or $found .Values.program.existingConfigMap) -}}
{{- $key := replace "." "\\." $path -}}
{{- fail (printf "spec.program.%s is %s, which is not among program.files (%s): give it with `--set-file 'program.files.%s=%s'`, or in program.existingConfigMap" $field $source (keys $files | sortAlpha | join ", " | default "there are none") $key $source) -}}
{{- end -}}
{{- end -}}
{{- end -}}
