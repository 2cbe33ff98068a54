package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A flag goes before the environment: with --store, the store is meant although WEFT_URL is set.
func TestWhetherTheStoreIsMeant(t *testing.T) {
	const store, url = "sqlite:a.db", "https://shop.internal"
	for _, c := range []struct {
		store, url string
		write      bool
		storeEnv   string
		urlEnv     string
		want       bool
	}{
		{store: store, want: true},
		{url: url},
		{store: store, storeEnv: store, url: url, urlEnv: url},
		{store: store, storeEnv: store, url: url, urlEnv: url, write: true, want: true},
		{store: store, url: url, urlEnv: url, want: true},
		{store: store, storeEnv: "bolt:b", url: url, urlEnv: url, want: true},
		{store: store, storeEnv: store, url: url},
		{store: store, url: url}, // both are flags
		{url: url, urlEnv: url},
	} {
		env := map[string]string{"WEFT_STORE": c.storeEnv, "WEFT_URL": c.urlEnv}
		p := anyPlane{plane{URL: c.url}}
		if got := p.meansStore(c.store, c.write, func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

type roundTrip func() (*http.Response, error)

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// The command says once, after about a second, what it tries again.
func TestWhatIsRepeatedIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		next := roundTrip(func() (*http.Response, error) { return nil, errors.New("connection refused") })
		r := &retelling{next: next, note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}
		q, err := http.NewRequest("GET", "http://shop.internal/v1/runs", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{0, 0, 0, 1, 1} {
			if _, err := r.RoundTrip(q); err == nil || len(notes) != want {
				t.Errorf("attempt %d: %q, %v", i, notes, err)
			}
			time.Sleep(300 * time.Millisecond)
		}
		if !slices.Equal(notes, []string{"shop.internal does not answer: connection refused; trying again for a while"}) {
			t.Errorf("got %q", notes)
		}
		notes = nil
		r = &retelling{next: roundTrip(func() (*http.Response, error) { return &http.Response{StatusCode: 503, Status: "503 \x1b[2J"}, nil }), note: r.note}
		for range 2 {
			if _, err := r.RoundTrip(q); err != nil {
				t.Error(err)
			}
			time.Sleep(patience)
		}
		if !slices.Equal(notes, []string{`shop.internal answers 503 \x1b[2J; trying again for a while`}) {
			t.Errorf("got %q", notes)
		}
		quick := &retelling{note: func(string, ...any) { t.Error("a request that was answered is noted") }}
		for _, status := range []int{503, 200, 503} { // a second lies between the first and the last
			quick.next = roundTrip(func() (*http.Response, error) { return &http.Response{StatusCode: status}, nil })
			if _, err := quick.RoundTrip(q); err != nil {
				t.Error(err)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}
