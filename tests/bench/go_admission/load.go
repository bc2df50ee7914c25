package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"sync"
	"time"
)

type figures struct {
	Reviews   int     `json:"reviews"`
	PerSecond float64 `json:"per_second"`
	P50Ms     float64 `json:"p50_ms"`
	P99Ms     float64 `json:"p99_ms"`
}

// load posts one review over and over, each connection waiting for its answer, and prints figures.
func load(arguments []string) error {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	url := flags.String("url", "", "the webhook")
	ca := flags.String("ca", "", "CA file")
	file := flags.String("body", "", "file with the review")
	connections := flags.Int("connections", 8, "how many at once")
	seconds := flags.Float64("seconds", 2, "how long to measure")
	warmup := flags.Float64("warmup", 0.3, "how long to wait before")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	body, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	begin := time.Now().Add(time.Duration(*warmup * float64(time.Second)))
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	times := make([][]time.Duration, *connections)
	errors := make([]error, *connections)
	var group sync.WaitGroup
	for i := range times {
		group.Add(1)
		go func() {
			defer group.Done()
			times[i], errors[i] = connection(*url, pool, body, begin, end)
		}()
	}
	group.Wait()
	var all []time.Duration
	for i := range times {
		if errors[i] != nil {
			return errors[i]
		}
		all = append(all, times[i]...)
	}
	if len(all) == 0 {
		return fmt.Errorf("no review was answered in time")
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
	}
	return json.NewEncoder(os.Stdout).Encode(
		figures{len(all), float64(len(all)) / *seconds, at(0.5), at(0.99)})
}

func connection(
	url string, pool *x509.CertPool, body []byte, begin, end time.Time,
) ([]time.Duration, error) {
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		MaxIdleConnsPerHost: 1,
	}}
	var times []time.Duration
	for {
		started := time.Now()
		if started.After(end) {
			return times, nil
		}
		response, err := client.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return nil, err
		}
		if response.StatusCode != 200 || !bytes.Contains(content, []byte(`"patch"`)) {
			return nil, fmt.Errorf("HTTP %d: %.200s", response.StatusCode, content)
		}
		if done := time.Now(); started.After(begin) && done.Before(end) {
			times = append(times, done.Sub(started))
		}
	}
}
