package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// An event is what an EventSource gets.
type event struct {
	name, id string
	spoken
}

// events reads server-sent events until they end, or until there are most.
func events(t *testing.T, path string, lastEventID string, most int) (all []event) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s, %q", path, a.Status, a.Header.Get("Content-Type"))
	}
	var e event
	for lines := bufio.NewScanner(a.Body); len(all) < most && lines.Scan(); {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.spoken); err != nil {
				t.Fatal(err)
			}
		case "":
			if e != (event{}) {
				all = append(all, e)
			}
			e = event{}
		}
	}
	return all
}

// A browser gets each word once and in order, also if it connects again, or its page was reloaded, in the middle. package
// browser does this with a real one, and kills the program.
func TestWordsComeOnce(t *testing.T) {
	chat := newChat(new(model))
	eng, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{chat}})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	go eng.Run(t.Context())
	server := httptest.NewServer(newWeb(eng, chat))
	defer server.Close()

	a, err := http.PostForm(server.URL+"/chats", url.Values{"question": {"why?"}})
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	path := a.Request.URL // where it was redirected to
	if a.StatusCode != http.StatusOK || !strings.HasPrefix(path.Path, "/chats/wrun_") {
		t.Fatalf("asked: %s, %s", a.Status, path)
	}
	source := path.String() + "/words?lastEventId=-1"
	first := events(t, source, "", 7)
	again := events(t, source, "6", 5)
	reloaded := events(t, path.String()+"/words?lastEventId=11", "", 1000)
	var got []string
	for n, e := range slices.Concat(first, again, reloaded[:len(reloaded)-1]) {
		if e.id != strconv.Itoa(n) || e.Attempt != 1 || e.name != "" {
			t.Fatalf("event %d is %+v", n, e)
		}
		got = append(got, e.Word)
	}
	if want := answerTo("why?"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if last := reloaded[len(reloaded)-1]; last.name != "end" {
		t.Errorf("the last event is %+v", last)
	}
}

// What is no question is refused, and so is a chat that there is not: an EventSource would ask again for ever.
func TestRefusals(t *testing.T) {
	chat := newChat(new(model))
	eng, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{chat}})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	web := newWeb(eng, chat)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/", http.StatusOK},
		{http.MethodPost, "/chats", http.StatusBadRequest},
		{http.MethodPost, "/chats?question=+", http.StatusBadRequest},
		{http.MethodPost, "/chats?question=" + strings.Repeat("x", 1001), http.StatusBadRequest},
		{http.MethodGet, "/chats/none/words", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		web.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if w.Code != c.want {
			t.Errorf("%s %.30s: %d, want %d", c.method, c.path, w.Code, c.want)
		}
	}
}
