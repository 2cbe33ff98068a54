package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/engine"
)

// An update without an answer yet is asked for again, with the id that it has, until there is one. Without an ID
// each call has another.
func TestAnUpdateIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		c := over(t, func(q *http.Request) (*http.Response, error) {
			var body struct{ UpdateID string }
			data, err := io.ReadAll(q.Body)
			if err != nil || json.Unmarshal(data, &body) != nil {
				t.Errorf("sent was %s, %v", data, err)
			}
			ids = append(ids, body.UpdateID)
			if len(ids)%3 != 0 {
				return answer(202, `{"runId":"o","updateName":"u","updateId":"`+body.UpdateID+`"}`), nil
			}
			return answer(200, `{"runId":"o","updateName":"u","updateId":"`+body.UpdateID+`","result":7}`), nil
		})
		for range 2 {
			if n, err := (&engine.Update[int, int]{Name: "u"}).Call(t.Context(), c, "o", 1, nil); n != 7 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if len(ids) != 6 || ids[0] == "" || ids[0] != ids[1] || ids[0] != ids[2] || ids[3] == ids[0] || ids[3] != ids[5] {
			t.Errorf("the ids are %q", ids)
		}
	})
}

// After a control plane has accepted an update, no failure to get its answer says that it had no effect. An answer of the update does.
func TestAnUpdateThatWasAcceptedIsUnknown(t *testing.T) {
	problem := func(status int, code string) func() (*http.Response, error) {
		return func() (*http.Response, error) {
			return answer(status, fmt.Sprintf(`{"code":%q,"message":"m","retry":"same-key"}`, code), "Content-Type", "application/problem+json"), nil
		}
	}
	for _, c := range []struct {
		what    string
		then    func() (*http.Response, error)
		unknown bool
	}{
		{"no connection", func() (*http.Response, error) { return nil, &net.OpError{Op: "dial", Err: errors.New("refused")} }, true},
		{"closing", problem(503, "closing"), true},
		{"unauthorized", problem(401, "unauthorized"), true},
		{"rate_limited", problem(429, "rate_limited"), true},
		{"not_found", problem(404, "not_found"), true},
		{"update_rejected", problem(409, "update_rejected"), false},
	} {
		for _, accepted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				begun := false
				client := over(t, func(*http.Request) (*http.Response, error) {
					if accepted && !begun {
						begun = true
						return answer(202, `{}`), nil
					}
					return c.then()
				})
				_, err := (&engine.Update[int, int]{Name: "u"}).Call(t.Context(), client, "o", 1, nil)
				if e, ok := errors.AsType[*Error](err); !ok || e.Unknown != (accepted && c.unknown) {
					t.Errorf("%s, accepted %v: %#v", c.what, accepted, err)
				}
				if c.what != "no connection" {
					return
				}
				begun = false
				ctx, end := context.WithTimeout(t.Context(), 1100*time.Millisecond) // it is asked again after a second
				defer end()
				_, err = (&engine.Update[int, int]{Name: "u"}).Call(ctx, client, "o", 1, nil)
				if e, ok := errors.AsType[*weft.InterruptedError](err); !ok || e.Unknown != accepted {
					t.Errorf("accepted %v, interrupted: %#v", accepted, err)
				}
			})
		}
	}
}

// An update with a start is asked for again without the start: the run has been there, and is not started once more. A
// start without an id has one, which it keeps. What a control plane cannot be told is refused before anything is sent.
func TestAnUpdateStartsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		c := over(t, func(q *http.Request) (*http.Response, error) {
			data, err := io.ReadAll(q.Body)
			if err != nil {
				t.Error(err)
			}
			sent = append(sent, q.URL.Path+" "+string(data))
			if len(sent) < 3 {
				return answer(202, `{}`), nil
			}
			return answer(200, `{"result":7}`), nil
		})
		u, id := &engine.Update[int, int]{Name: "u"}, &engine.UpdateOptions{ID: "x"}
		if n, err := u.CallWithStart(t.Context(), c, &weft.StartRequest{Workflow: "w", Input: 1}, 2, id); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if len(sent) != 3 || !strings.Contains(sent[0], "/v1/runs/wrun_") {
			t.Fatalf("sent were %q", sent)
		}
		path, _, _ := strings.Cut(sent[0], " ")
		want := []string{path + ` {"input":2,"start":{"input":1,"workflowName":"w"},"updateId":"x"}`, path + ` {"input":2,"updateId":"x"}`, path + ` {"input":2,"updateId":"x"}`}
		if !slices.Equal(sent, want) {
			t.Errorf("sent were %q, want %q", sent, want)
		}
		if _, err := u.CallWithStart(t.Context(), c, &weft.StartRequest{Workflow: "w", Options: weft.StartOptions{Queue: "q"}}, 2, id); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a start with a queue: %v", err)
		}
		if err := c.CallUpdate(t.Context(), &weft.UpdateRequest{Update: "u", WorkflowID: "o", Start: &weft.StartRequest{Workflow: "w"}}, nil); !errors.Is(err, weft.ErrInvalid) {
			t.Errorf("a start and an id: %v", err)
		}
		if len(sent) != 3 {
			t.Errorf("sent were %q", sent[3:])
		}
	})
}

// What awaits a value is called with each version once, is told that there is none yet by nothing, and ends with
// the run.
func TestAValueIsSeenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []*http.Response{
			answer(404, `{"code":"no_value","message":"m","details":{"status":"running"}}`, "Content-Type", "application/problem+json"),
			answer(200, `{"name":"v","version":"a","status":"running","value":1}`),
			answer(200, `{"name":"v","version":"a","status":"running","value":1}`),
			answer(200, `{"name":"v","version":"b","status":"running","value":2}`),
			answer(200, `{"name":"v","version":"b","status":"failed","value":2}`),
		}
		var asked []string
		c := over(t, func(q *http.Request) (*http.Response, error) {
			asked = append(asked, q.URL.Query().Get("after"))
			if len(asked) > len(answers) {
				return nil, fmt.Errorf("asked %d times", len(asked))
			}
			return answers[len(asked)-1], nil
		})
		var seen []int
		_, err := (&engine.Value[int]{Name: "v"}).Await(t.Context(), c, "o", func(n int) bool { seen = append(seen, n); return false })
		if e, ok := err.(*weft.TerminalError); !ok || e.Status != "failed" || e.WorkflowID != "o" {
			t.Errorf("%v, want a *TerminalError", err)
		}
		if !slices.Equal(seen, []int{1, 2}) || !slices.Equal(asked, []string{"", "", "a", "a", "b"}) {
			t.Errorf("seen were %v, asked for was what comes after %q", seen, asked)
		}
	})
}

// Errors of updates are those of the engine, with the sentinels that it has itself.
func TestErrorsOfUpdates(t *testing.T) {
	for code, want := range map[string]error{"busy": weft.ErrBusy, "update_mismatch": weft.ErrMismatch, "update_rejected": weft.ErrRejected, "update_failed": weft.ErrTerminated} {
		c := over(t, func(*http.Request) (*http.Response, error) {
			return answer(409, fmt.Sprintf(`{"code":%q,"message":"m","retry":"never","details":{"error":{"message":"why","code":%q}}}`, code, weft.ErrTerminated), "Content-Type", "application/problem+json"), nil
		})
		_, err := (&engine.Update[int, int]{Name: "u"}).Call(t.Context(), c, "o", 1, nil)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", code, err, want)
		}
	}
}
