package npm_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// A published message, as it comes to the server.
type published struct {
	Message struct {
		StepID string `json:"stepId"`
	} `json:"message"`
	Opts struct {
		IdempotencyKey string `json:"idempotencyKey"`
	} `json:"opts"`
}

// WLD-34: a step's key is minted once for each invocation, and its publication has it.
func TestKeysOfSteps(t *testing.T) {
	needNPM(t)
	onSQLite(t, func(t *testing.T, s storage.Storage) {
		v := serve(t, s, world.Options{})
		var mu sync.Mutex
		var all []published
		recorder := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/world/queue/publish" {
				body, err := io.ReadAll(r.Body)
				var p published
				if err == nil {
					err = cbor.Unmarshal(body, &p)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				all = append(all, p)
				mu.Unlock()
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			v.handler.ServeHTTP(rw, r)
		}))
		t.Cleanup(recorder.Close)
		app := suiteApp(t, recorder.URL)
		const runs = 3
		for range runs {
			if _, err := post(t.Context(), app+"/invoke", object{"file": "workflows/inline-execution.ts", "workflow": "threeBatchesOfFiveWorkflow", "args": []int{}}); err != nil {
				t.Fatal(err)
			}
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			done, err := post(t.Context(), v.URL+"/v1/world/runs/list", object{"status": "completed"})
			if err != nil {
				t.Fatal(err)
			}
			if len(done["data"].([]any)) == runs {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after a minute %v have completed", done["data"])
			}
		}
		mu.Lock()
		defer mu.Unlock()
		keys := map[string]string{}
		form := regexp.MustCompile(`^step_[0-9A-HJKMNP-TV-Z]{26}$`)
		for _, p := range all {
			key := p.Opts.IdempotencyKey
			if !form.MatchString(key) {
				continue // of a message that is not a step's
			}
			if first, again := keys[key]; again && first != p.Message.StepID || p.Message.StepID != key {
				t.Errorf("key %s is that of step %q, and of %q", key, p.Message.StepID, first)
			}
			keys[key] = p.Message.StepID
		}
		if len(keys) < runs {
			t.Errorf("%d messages of steps have a key, want one of each run or more: %+v", len(keys), all)
		}
	})
}
