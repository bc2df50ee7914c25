package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sort"
	"strings"
	"time"
)

type ownerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller *bool  `json:"controller"`
}

type pod struct {
	Metadata struct {
		Name            string            `json:"name"`
		GenerateName    string            `json:"generateName"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
		OwnerReferences []ownerReference  `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Command []string `json:"command"`
			Args    []string `json:"args"`
		} `json:"containers"`
	} `json:"spec"`
}

type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    *struct {
		UID       string `json:"uid"`
		Operation string `json:"operation"`
		Namespace string `json:"namespace"`
		Object    pod    `json:"object"`
	} `json:"request"`
}

type response struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	PatchType *string `json:"patchType,omitempty"`
	Patch     []byte  `json:"patch,omitempty"`
}

type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

var jsonPatch = "JSONPatch"

func serve(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	cert := flags.String("cert", "", "certificate file")
	key := flags.String("key", "", "key file")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.SetOutput(io.Discard)
	mux := http.NewServeMux()
	mux.HandleFunc("/mutate", mutate)
	return (&http.Server{Handler: mux}).ServeTLS(listener, *cert, *key)
}

func mutate(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var in review
	if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	patch, err := json.Marshal(stamp(&in.Request.Object))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out := answer{in.APIVersion, in.Kind, response{in.Request.UID, true, &jsonPatch, patch}}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		log.Print(err)
	}
}

// stamp makes the operations that podstamp makes for a new pod of a set.
func stamp(p *pod) []operation {
	now := time.Now().UTC()
	labels := map[string]string{"podstamp.dev/managed": "true"}
	annotations := map[string]string{"podstamp.dev/incarnation": incarnation(now)}
	if set, index := place(p); set != "" {
		labels["podstamp.dev/podset"] = set
		if index != "" {
			labels["podstamp.dev/podset-index"] = index
			key := "stormservice.orchestration.aibrix.ai/pod-group-index"
			if _, found := p.Metadata.Labels[key]; !found {
				labels[key] = index
			}
		}
	}
	if names := adapters(p); len(names) > 0 {
		sum := sha256.Sum256([]byte(strings.Join(names, ",")))
		annotations["podstamp.dev/adapters-digest"] = hex.EncodeToString(sum[:])[:16]
		annotations["lora-modified"] = now.Format("2006-01-02T15:04:05.000000000Z")
	}
	operations := add(nil, "labels", p.Metadata.Labels == nil, labels)
	return add(operations, "annotations", p.Metadata.Annotations == nil, annotations)
}

func add(operations []operation, where string, absent bool, values map[string]string) []operation {
	if absent {
		return append(operations, operation{"add", "/metadata/" + where, values})
	}
	for key, value := range values {
		escaped := strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
		operations = append(operations, operation{"add", "/metadata/" + where + "/" + escaped, value})
	}
	return operations
}

func incarnation(now time.Time) string {
	var b [16]byte
	if _, err := rand.Read(b[6:]); err != nil {
		panic(err)
	}
	ms := now.UnixMilli()
	for i := 5; i >= 0; i-- {
		b[i] = byte(ms)
		ms >>= 8
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func place(p *pod) (set, index string) {
	for _, owner := range p.Metadata.OwnerReferences {
		if owner.Controller == nil || !*owner.Controller || owner.Kind != "PodSet" {
			continue
		}
		suffix, found := strings.CutPrefix(p.Metadata.Name, owner.Name+"-")
		if !found || suffix == "" || (suffix[0] == '0' && suffix != "0") {
			return owner.Name, ""
		}
		for _, c := range suffix {
			if c < '0' || c > '9' {
				return owner.Name, ""
			}
		}
		return owner.Name, suffix
	}
	return "", ""
}

func adapters(p *pod) []string {
	seen := map[string]bool{}
	for _, name := range strings.Split(p.Metadata.Annotations["podstamp.dev/adapters"], ",") {
		if name = strings.TrimSpace(name); name != "" {
			seen[name] = true
		}
	}
	for _, container := range p.Spec.Containers {
		inside := false
		for _, argument := range append(append([]string{}, container.Command...), container.Args...) {
			if strings.HasPrefix(argument, "-") {
				inside = argument == "--lora-modules"
				continue
			}
			if !inside {
				continue
			}
			if strings.HasPrefix(argument, "{") {
				var module struct {
					Name string `json:"name"`
				}
				if json.Unmarshal([]byte(argument), &module) == nil && module.Name != "" {
					seen[module.Name] = true
				}
			} else if name, _, found := strings.Cut(argument, "="); found {
				seen[name] = true
			}
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
