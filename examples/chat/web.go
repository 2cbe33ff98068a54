package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/weft-go/weft/engine"
)

//go:embed page.html
var page []byte

// newWeb returns the pages: one to ask, one for each answer, and the words of that.
func newWeb(eng *engine.Engine, chat *engine.Workflow[string, int]) http.Handler {
	mux := http.NewServeMux()
	show := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}
	mux.HandleFunc("GET /{$}", show)
	mux.HandleFunc("GET /chats/{id}", show)
	mux.HandleFunc("POST /chats", func(w http.ResponseWriter, r *http.Request) {
		question := strings.TrimSpace(r.FormValue("question"))
		if question == "" || len(question) > 1000 {
			http.Error(w, "Ask something, in at most 1,000 bytes.", http.StatusBadRequest)
			return
		}
		h, err := chat.Start(r.Context(), eng, "", question)
		if err != nil {
			http.Error(w, "The question could not be stored.", http.StatusServiceUnavailable)
			return
		}
		http.Redirect(w, r, "/chats/"+h.ID(), http.StatusSeeOther)
	})
	mux.HandleFunc("GET /chats/{id}/words", func(w http.ResponseWriter, r *http.Request) { sendWords(w, r, eng) })
	return mux
}

// A spoken is a word as the page gets it. A page that sees a higher Attempt than before begins anew: the
// process that had asked the model is gone, and the model answers from the beginning.
type spoken struct {
	Word    string `json:"word"`
	Attempt int    `json:"attempt"`
}

// sendWords sends the words of a chat as server-sent events, behind the last one that the browser has got.
func sendWords(w http.ResponseWriter, r *http.Request, eng *engine.Engine) {
	id := r.PathValue("id")
	if _, err := eng.Describe(r.Context(), id); errors.Is(err, engine.ErrNotFound) {
		http.Error(w, "There is no such chat.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flusher := http.NewResponseController(w)
	fmt.Fprint(w, "retry: 250\n\n") // how soon the browser connects again
	if flusher.Flush() != nil {
		return
	}
	for c, err := range words.Read(r.Context(), eng, id, next(r)) {
		if err != nil {
			return // the browser connects again
		}
		data, err := json.Marshal(spoken{c.Data, c.Attempt})
		if err != nil {
			return
		}
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", c.Index, data)
		if flusher.Flush() != nil {
			return
		}
	}
	fmt.Fprint(w, "event: end\ndata: {}\n\n")
}

// next returns the number of the first word that the browser does not have. A page that was reloaded says it in
// the query. When a browser connects again by itself, it repeats that query, and says it in the header.
func next(r *http.Request) int64 {
	for _, last := range []string{r.Header.Get("Last-Event-ID"), r.FormValue("lastEventId")} {
		if n, err := strconv.ParseInt(last, 10, 64); err == nil && n >= 0 {
			return n + 1
		}
	}
	return 0
}
