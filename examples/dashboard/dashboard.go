package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
)

// newDashboard returns a handler that lists the workflows of an engine's store:
//
//	GET /                 a page for people
//	GET /workflows        a page of the list, as JSON
//	GET /workflows/count  how many there are
//
// All take the same parameters, which filterOf reads. An engine that does not run suffices.
func newDashboard(eng *engine.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /workflows", func(w http.ResponseWriter, r *http.Request) {
		_, p, err := pageOf(eng, r)
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p) // data, cursor (null at the end), hasMore and tail
	})
	mux.HandleFunc("GET /workflows/count", func(w http.ResponseWriter, r *http.Request) {
		f, err := filterOf(r.URL.Query())
		if err != nil {
			refuse(w, err)
			return
		}
		n, all, err := eng.Count(r.Context(), f, mostCounted)
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"count": n, "all": all})
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		f, p, err := pageOf(eng, r)
		if err != nil {
			refuse(w, err)
			return
		}
		n, all, err := eng.Count(r.Context(), f, mostCounted)
		if err != nil {
			refuse(w, err)
			return
		}
		q := r.URL.Query()
		v := view{Page: p, Query: q, Count: fmt.Sprint(n)}
		if !all {
			v.Count = fmt.Sprint("at least ", n)
		}
		q.Del("cursor")
		v.First = "?" + q.Encode()
		if p.HasMore {
			q.Set("cursor", p.Next)
			v.Next = "?" + q.Encode()
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := page.Execute(w, v); err != nil {
			log.Print(err)
		}
	})
	return mux
}

// mostCounted limits what a count costs.
const mostCounted = 1000

// pageOf reads the page that a request asks for. The cursor came from the page before. The
// engine refuses it with another filter, so the link to the next page repeats the parameters.
func pageOf(eng *engine.Engine, r *http.Request) (f engine.Filter, p engine.Page[engine.Info], err error) {
	q := r.URL.Query()
	if f, err = filterOf(q); err != nil {
		return f, p, err
	}
	which := engine.PageRequest{Limit: 20, Cursor: q.Get("cursor"), Ascending: q.Get("order") == "oldest"}
	if s := q.Get("limit"); s != "" {
		if which.Limit, err = strconv.Atoi(s); err != nil {
			return f, p, fmt.Errorf("%w: limit: %w", engine.ErrInvalid, err)
		}
	}
	p, err = eng.Page(r.Context(), f, which)
	return f, p, err
}

// filterOf returns the filter in the parameters workflow, status, label (NAME=VALUE, several
// times), attention, parent, top, prefix, since and until.
func filterOf(q url.Values) (f engine.Filter, err error) {
	f = engine.Filter{
		Workflow:  q.Get("workflow"),
		Status:    checkpoint.Status(q.Get("status")), // the engine refuses an unknown one
		Attention: q.Get("attention") != "",
		Parent:    q.Get("parent"),
		TopLevel:  q.Get("top") != "",
		IDPrefix:  q.Get("prefix"),
	}
	for _, s := range q["label"] {
		name, value, found := strings.Cut(s, "=")
		switch {
		case s == "":
			continue // an empty field of the form
		case !found:
			return f, fmt.Errorf("%w: the label %q is not NAME=VALUE", engine.ErrInvalid, s)
		case f.Labels == nil:
			f.Labels = map[string]string{}
		}
		f.Labels[name] = value
	}
	for name, t := range map[string]*time.Time{"since": &f.After, "until": &f.Before} {
		if s := q.Get(name); s != "" {
			if *t, err = time.Parse(time.RFC3339, s); err != nil {
				return f, fmt.Errorf("%w: %s: %w", engine.ErrInvalid, name, err)
			}
		}
	}
	return f, nil
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable // the store does not answer: try again
	if errors.Is(err, engine.ErrInvalid) {
		status = http.StatusBadRequest
	}
	http.Error(w, err.Error(), status)
}

// A view is what the page for people shows.
type view struct {
	engine.Page[engine.Info]
	Query       url.Values
	Count       string
	First, Next string // links; Next is "" if nothing follows
}

// page shows whatever is in ids, labels and errors as text: html/template escapes it.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<title>Workflows</title>
<style>body{font-family:sans-serif} td,th{text-align:left;padding-right:1em;vertical-align:top}</style>
<form>
<input name="workflow" placeholder="workflow" value="{{.Query.Get "workflow"}}">
<input name="status" placeholder="status" value="{{.Query.Get "status"}}">
<input name="label" placeholder="label=value" value="{{.Query.Get "label"}}">
<input name="prefix" placeholder="id begins with" value="{{.Query.Get "prefix"}}">
<label><input type="checkbox" name="attention" value="1"{{if .Query.Get "attention"}} checked{{end}}> needs an operator</label>
<label><input type="checkbox" name="top" value="1"{{if .Query.Get "top"}} checked{{end}}> no children</label>
<button>Find</button>
</form>
<p>{{.Count}} workflows. <a href="{{.First}}">From the beginning</a></p>
<table>
<tr><th>Id<th>Workflow<th>Status<th>Labels<th>Created<th>Needs</tr>
{{range .Data}}<tr><td>{{.ID}}<td>{{.Workflow}}<td>{{.Status}}<td>{{range $name, $value := .Labels}}{{$name}}={{$value}} {{end}}
<td>{{if .CreatedAt.IsZero}}-{{else}}{{.CreatedAt.UTC.Format "2006-01-02 15:04:05Z"}}{{end}}<td>{{range .Attention}}{{.Reason}} {{end}}{{.Damaged}}</tr>
{{end}}</table>
{{if .Next}}<p><a href="{{.Next}}">Next page</a></p>{{end}}
`))
