package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weft-go/weft"
	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/signal"
)

// answering has a verb call a control plane that gives these answers, the last one again and again. It returns what the verb prints and
// notes, and its error.
func answering(t *testing.T, f func(e *env, p plane) error, answers ...string) (out, notes string, err error) {
	t.Helper()
	_, out, notes, err = asking(t, f, answers...)
	return out, notes, err
}

// asking is answering, and returns the first request, too: its idempotency key and its body.
func asking(t *testing.T, f func(e *env, p plane) error, answers ...string) (asked, out, notes string, err error) {
	t.Helper()
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body, _ := strings.Cut(answers[min(n, len(answers)-1)], " ")
		if n++; n == 1 {
			sent, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			asked = r.Header.Get("Idempotency-Key") + " " + string(sent)
		}
		w.Header().Set("X-Workflow-Correlation-Id", "c-0")
		w.Header().Set("Content-Type", "application/json")
		code := 0
		if _, err := fmt.Sscan(status, &code); err != nil {
			t.Error(err)
		}
		if code >= 300 {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	t.Setenv("WEFT_KEY", "weft_sk_0123456789abcdef0123456789")
	var printed, noted bytes.Buffer
	e := &env{Context: t.Context(), out: bufio.NewWriter(&printed), notes: &noted}
	err = f(e, plane{URL: server.URL})
	if err := e.out.Flush(); err != nil {
		t.Fatal(err)
	}
	return asked, printed.String(), noted.String(), err
}

const (
	emptyPage = `200 {"data":[],"hasMore":true,"cursor":"c1","tail":"c1"}`
	lastPage  = `200 {"data":[{"runId":"good","status":"running"},{"runId":"bad","damaged":"its record is torn"}],"hasMore":false,"cursor":null,"tail":"c2"}`
)

// --limit 0 goes on behind a page that is empty. Of a list with a run that could not be read, the command fails.
func TestAListGoesOnBehindAnEmptyPage(t *testing.T) {
	for _, limit := range []int{0, 50} {
		out, notes, err := answering(t, func(e *env, p plane) error {
			return (&runsList{plane: p, paged: paged{Limit: limit}}).Run(e)
		}, emptyPage, lastPage)
		if !strings.Contains(out, "good") || !strings.Contains(out, "its record is torn") || notes != "" {
			t.Errorf("limit %d: printed was %q, and noted %q", limit, out, notes)
		}
		if err == nil || !strings.Contains(err.Error(), "could not be read: 1") {
			t.Errorf("limit %d: %v, want that one could not be read", limit, err)
		}
	}
	out, notes, err := answering(t, func(e *env, p plane) error {
		return (&runsList{plane: p, paged: paged{Limit: 1}}).Run(e)
	}, `200 {"data":[{"runId":"good","status":"running"}],"hasMore":true,"cursor":"c1","tail":"c1"}`)
	if err != nil || !strings.Contains(out, "good") || !strings.Contains(notes, "--cursor c1") {
		t.Errorf("limit 1: printed was %q, and noted %q, %v", out, notes, err)
	}
}

// Nothing in what a server answers moves the cursor of a terminal.
func TestWhatServersAnswerIsEscaped(t *testing.T) {
	const bad = `"\u001b]52;c;eA==\u0007"`
	for what, c := range map[string]struct {
		call   func(e *env, p plane) error
		answer string
	}{
		"a list of runs": {func(e *env, p plane) error { return (&runsList{plane: p, paged: paged{Limit: 50}}).Run(e) },
			`200 {"data":[{"runId":"a","status":` + bad + `}],"hasMore":false,"cursor":null,"tail":"c1"}`},
		"a bulk": {func(e *env, p plane) error { return (&bulksGet{oneBulk{plane: p, ID: "b"}}).Run(e) }, `200 {"bulkId":"b","do":` + bad + `}`},
	} {
		out, _, err := answering(t, c.call, c.answer)
		if err != nil || !strings.Contains(out, `\x1b]52;c;eA==\a`) || strings.ContainsAny(out, "\x1b\a") {
			t.Errorf("%s: %v, printed was %q", what, err, out)
		}
	}
}

// A list on a store goes on and fails as one over HTTP, and has its own cursor.
func TestWorkflowsAreListed(t *testing.T) {
	var printed, noted bytes.Buffer
	e := &env{out: bufio.NewWriter(&printed), notes: &noted}
	read := func(r weft.PageRequest) (weft.Page[weft.Info], error) {
		if r.Cursor == "" {
			return weft.Page[weft.Info]{Next: "a", HasMore: true}, nil
		}
		return weft.Page[weft.Info]{Next: "b", HasMore: true, Data: []weft.Info{{ID: "bad", Damaged: "torn"}}}, nil
	}
	err := listed(e, paged{Limit: 1}, read, func(next string) string { return "mine:" + next })
	if err == nil || !strings.Contains(err.Error(), "could not be read: 1") || !strings.Contains(noted.String(), "--cursor mine:b") {
		t.Errorf("%v, noted was %q", err, noted.String())
	}
}

const (
	unauthorized = `401 {"code":"unauthorized","message":"Invalid API key","retry":"never"}`
	unknown      = `500 {"code":"internal","message":"m","retry":"never"}`
)

// An update that a control plane has accepted has an id by which its answer is asked for, whatever fails afterwards.
func TestTheIDOfAnUpdateIsNoted(t *testing.T) {
	for _, c := range []struct {
		answers []string
		noted   bool
	}{{[]string{"202 {}", unauthorized}, true}, {[]string{unauthorized}, false}} {
		_, notes, err := answering(t, func(e *env, p plane) error {
			return (&runsUpdate{oneRun: oneRun{plane: p, ID: "o"}, Name: "u", Input: "null"}).Run(e)
		}, c.answers...)
		if noted := strings.Contains(notes, "repeat this with --id upd_"); err == nil || noted != c.noted {
			t.Errorf("%q: noted was %q, %v", c.answers, notes, err)
		}
	}
}

// If nobody knows whether a call took effect, what makes a repetition the same call is noted: what the command has made, and
// times for what was so long ago.
func TestTheSameCallCanBeMadeAgain(t *testing.T) {
	for what, c := range map[string]struct {
		call  func(e *env, p plane) error
		noted string // up to the value
	}{
		"an update": {func(e *env, p plane) error {
			return (&runsUpdate{oneRun: oneRun{plane: p, ID: "o"}, Name: "u", Input: "null"}).Run(e)
		}, "--id "},
		"a signal": {func(e *env, p plane) error {
			return (&signalsSend{p, sending{Workflow: "o", Name: "s", Payload: "null"}}).Run(e)
		}, "--id "},
		"a hook": {func(e *env, p plane) error {
			return (&hooksResume{anyPlane: anyPlane{plane: p}, Token: "t", Payload: "null"}).Run(e)
		}, "--id "},
		"a start": {func(e *env, p plane) error {
			return (&runsStart{plane: p, starting: starting{Workflow: "w", Input: "null"}}).Run(e)
		}, "--idempotency-key "},
		"a bulk": {func(e *env, p plane) error {
			return (&bulksStart{oneBulk: oneBulk{p, "b"}, Verb: "cancel", Since: "2h", Reason: "r"}).Run(e)
		}, "--since "},
	} {
		asked, _, notes, err := asking(t, c.call, unknown)
		_, value, found := strings.Cut(strings.TrimSpace(notes), "repeat this with "+c.noted)
		if _, ok := errors.AsType[*remote.Error](err); !ok || !found || value == "" || !strings.Contains(asked, value) {
			t.Errorf("%s: %v, sent was %q, noted %q", what, err, asked, notes)
		}
		if _, _, notes, err := asking(t, c.call, unauthorized); err == nil || notes != "" {
			t.Errorf("%s, refused: %v, noted %q", what, err, notes)
		}
	}
	_, _, notes, err := asking(t, func(e *env, p plane) error {
		return (&bulksStart{oneBulk: oneBulk{p, "b"}, Verb: "cancel", Since: "2026-01-02T03:04:05Z", Reason: "r"}).Run(e)
	}, unknown)
	if err == nil || notes != "" {
		t.Errorf("a bulk with a time: %v, noted %q", err, notes)
	}

	var noted bytes.Buffer
	e := &env{Context: t.Context(), out: bufio.NewWriter(io.Discard), notes: &noted}
	id := ""
	err = e.send(signal.Message{Name: "s"}, func(_ context.Context, m signal.Message) (signal.Accepted, error) {
		id = *m.ID
		return signal.Accepted{}, &weft.InterruptedError{Unknown: true}
	})
	if err == nil || id == "" || !strings.Contains(noted.String(), "--id "+id) {
		t.Errorf("in a store: %v, the id is %q, and noted %q", err, id, noted.String())
	}
}

// A bulk of so long ago that is started again is another one. The times of the one that is there are noted.
func TestABulkOfSoLongAgoIsAnother(t *testing.T) {
	const mismatch = `409 {"code":"bulk_exists","message":"m","retry":"never"}`
	for _, c := range []struct{ there, noted string }{
		{`{"bulkId":"b","do":"cancel","filter":{"after":"2026-01-02T03:04:05.000006Z","before":"2026-01-03T00:00:00Z"}}`, "--since 2026-01-02T03:04:05.000006Z --until 2026-01-03T00:00:00Z"},
		{`{"bulkId":"b","do":"cancel","filter":{"after":"2026-01-02T03:04:05Z"}}`, ""},
	} {
		_, notes, err := answering(t, func(e *env, p plane) error {
			return (&bulksStart{oneBulk: oneBulk{p, "b"}, Verb: "cancel", Since: "2h", Until: "0s", Reason: "r"}).Run(e)
		}, mismatch, "200 "+c.there)
		if !errors.Is(err, weft.ErrMismatch) || !strings.Contains(notes, c.noted) || (c.noted == "") != (notes == "") {
			t.Errorf("%v, noted %q, want %q", err, notes, c.noted)
		}
	}
}
