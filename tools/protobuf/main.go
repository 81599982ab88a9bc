// Writes to stdout how the built-in kinds of Kubernetes are numbered in protobuf, as JSON.
//
// The Go types carry both forms of a field in their tags: its number on the wire, and its name in
// JSON, with what JSON leaves out. tools/write_protobuf.py runs this beside the pinned modules.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var kinds = map[string][]any{
	"v1": {
		core.Binding{}, core.ConfigMap{}, core.Event{}, core.LimitRange{}, core.Namespace{},
		core.Node{}, core.PersistentVolume{}, core.PersistentVolumeClaim{}, core.Pod{},
		core.PodTemplate{},
		core.ResourceQuota{}, core.Secret{}, core.Service{}, core.ServiceAccount{},
		meta.DeleteOptions{},
	},
	"admissionregistration.k8s.io/v1": {
		admissionregistration.MutatingWebhookConfiguration{},
		admissionregistration.ValidatingWebhookConfiguration{},
	},
	"apps/v1":                {apps.DaemonSet{}, apps.ReplicaSet{}, apps.StatefulSet{}},
	"batch/v1":               {batch.Job{}},
	"coordination.k8s.io/v1": {coordination.Lease{}},
	"networking.k8s.io/v1":   {networking.NetworkPolicy{}},
	"policy/v1":              {policy.Eviction{}, policy.PodDisruptionBudget{}},
	"rbac.authorization.k8s.io/v1": {
		rbac.ClusterRole{}, rbac.ClusterRoleBinding{}, rbac.Role{}, rbac.RoleBinding{},
	},
	"scheduling.k8s.io/v1": {scheduling.PriorityClass{}},
	"storage.k8s.io/v1":    {storage.CSINode{}, storage.StorageClass{}},
}

var special = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}):    "quantity",
	reflect.TypeOf(meta.Time{}):            "time",
	reflect.TypeOf(meta.MicroTime{}):       "microtime",
	reflect.TypeOf(intstr.IntOrString{}):   "intstr",
	reflect.TypeOf(runtime.RawExtension{}): "json",
	reflect.TypeOf(meta.FieldsV1{}):        "json",
	reflect.TypeOf([]byte{}):               "bytes",
}

// A field is its name in JSON, its type, and letters: i inlined, m map, o left out when zero,
// r repeated.
type field [3]string

var messages = map[string]map[string]field{}

func main() {
	named := map[string]string{}
	for version, objects := range kinds {
		for _, object := range objects {
			t := reflect.TypeOf(object)
			named[version+" "+t.Name()] = message(t)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	if err := encoder.Encode(map[string]any{"kinds": named, "messages": messages}); err != nil {
		panic(err)
	}
}

func message(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	name := parts[len(parts)-2] + "." + parts[len(parts)-1] + "." + t.Name()
	if _, known := messages[name]; known {
		return name
	}
	fields := map[string]field{}
	messages[name] = fields
	for i := range t.NumField() {
		member := t.Field(i)
		tag := strings.Split(member.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		if _, err := strconv.Atoi(tag[1]); err != nil {
			panic(name + "." + member.Name)
		}
		fields[tag[1]] = described(member)
	}
	return name
}

func described(member reflect.StructField) field {
	names := strings.Split(member.Tag.Get("json"), ",")
	letters, t := "", member.Type
	if names[0] == "" {
		letters += "i"
	}
	if t.Kind() != reflect.Pointer && strings.Contains(member.Tag.Get("json"), "omitempty") {
		letters += "o"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, known := special[t]; !known && t.Kind() == reflect.Map {
		letters, t = letters+"m", t.Elem()
	} else if !known && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		letters, t = letters+"r", t.Elem()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return field{names[0], typed(t), letters}
}

func typed(t reflect.Type) string {
	if name, known := special[t]; known {
		return name
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Struct:
		return message(t)
	default:
		panic(t.String())
	}
}
