{{- /* Made by `make crds` from tools/chart: change that, not this file. */ -}}

{{- /* An image by registry, name, and digest or tag. */ -}}
{{- define "pumice.reference" -}}
{{- with .registry }}{{ . }}/{{ end }}{{ .name }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end -}}

{{- define "pumice.image" -}}
{{- $basic := .Values.basic -}}
{{- include "pumice.reference" (dict "registry" $basic.image_registry "name" $basic.image_name "tag" $basic.image_tag_version "digest" $basic.image_digest) -}}
{{- end -}}

{{- define "pumice.nats-image" -}}
{{- $basic := .Values.basic -}}
{{- include "pumice.reference" (dict "registry" $basic.nats_image_registry "name" $basic.nats_image_name "tag" $basic.nats_image_tag_version "digest" $basic.nats_image_digest) -}}
{{- end -}}

{{- /* A flag with its value: a large number of a values file is a float to Helm, and 3e+06 to printf. */ -}}
{{- define "pumice.flag" -}}
--{{ index . 0 }}={{ $value := index . 1 }}{{ if kindIs "float64" $value }}{{ toJson $value }}{{ else }}{{ $value }}{{ end }}
{{- end -}}

{{- /* Where the pods of a service run, and the credentials for its image. */ -}}
{{- define "pumice.place" -}}
{{- $custom := .Values.custom -}}
{{- with .Values.basic.image_pull_secret }}
imagePullSecrets:
  - name: {{ . }}
{{- end }}
{{- with get $custom (printf "%s_ns" .name) | default $custom.default_ns }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with get $custom (printf "%s_tolerations" .name) | default $custom.default_tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with get $custom (printf "%s_affinity" .name) | default $custom.default_affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Names of schedulers by commas, if it is not the one that a service serves without a flag. */ -}}
{{- define "pumice.schedulers" -}}
{{- $own := .custom.second_scheduler | default .custom.scheduler_name -}}
{{- $more := list -}}
{{- if .custom.agent_scheduler_enable }}{{ $more = .single }}{{ end -}}
{{- if .others }}{{ $more = concat $more .custom.other_schedulers }}{{ end -}}
{{- if or $own $more }}{{ prepend $more ($own | default "volcano") | join "," }}{{ end -}}
{{- end -}}

{{- /* What names of objects without a namespace end in, where a second installation has its own. */ -}}
{{- define "pumice.suffix" -}}
{{- with .Values.custom.second_scheduler }}-{{ . }}{{ end }}
{{- end -}}

{{- /* The Leases that the cache holds. */ -}}
{{- define "pumice.own-lease" -}}
{{- .Values.custom.second_scheduler | default "volcano" }}
{{- end -}}

{{- define "pumice.controller-lease" -}}
{{- with .Values.custom.second_scheduler }}{{ . }}-controller{{ else }}vc-controller-manager{{ end }}
{{- end -}}
