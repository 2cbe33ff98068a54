package signal_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// SIG-11, SIG-13 to SIG-18: two signals are the same if name and ID are the same bytes,
// and only then. An invalid ID or name is refused, and nothing is written.
func FuzzSignalIDs(f *testing.F) {
	wide := strings.Repeat("é", 64)
	for _, c := range [][4]string{
		{"a", "x", "a", "x"},
		{"a", "x", "A", "x"},
		{"a", "x", "a", "X"},
		{"a:b", "c", "a", "b:c"},
		{"a%3Ab", "c", "a:b", "c"},
		{"a", "é", "a", "e\u0301"},
		{"a", " x", "a", "x "},
		{"a", "x\x00", "a", "x"},
		{"a/b", "..", "a", "b/.."},
		{"a", wide, "a", wide + "x"},
		{"a", "", "", "x"},
		{"a", "\xff", "a", "\xfe"},
		{strings.Repeat("n", 100), "x", strings.Repeat("n", 101), "x"},
	} {
		f.Add(c[0], c[1], c[2], c[3])
	}
	f.Fuzz(func(t *testing.T, name1, id1, name2, id2 string) {
		ctx, s := t.Context(), new(memory.Store)
		e, err := engine.New(engine.Config{Storage: s, Name: "fuzz", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if _, err := e.StartWorkflow(ctx, &engine.StartRequest{Workflow: "w", ID: "o:1"}); err != nil {
			t.Fatal(err)
		}
		sent := map[[2]string]signal.Accepted{}
		for _, c := range [][2]string{{name1, id1}, {name2, id2}, {name1, id1}} {
			before := records(t, s, "")
			a, err := e.SendSignal(ctx, signal.Message{WorkflowID: "o:1", Name: c[0], ID: &c[1], Payload: "v"})
			if !isName(c[0], keys.MaxName) || !isName(c[1], keys.MaxSignalID) {
				if after := records(t, s, ""); !errors.Is(err, engine.ErrInvalid) || after != before {
					t.Fatalf("%q: %v, %d records were written; want ErrInvalid and none", c, err, after-before)
				}
				continue
			}
			if err != nil || a.SignalName != c[0] || a.SignalID != c[1] {
				t.Fatalf("%q: %+v, %v", c, a, err)
			}
			first, again := sent[c]
			if a.Repeated != again {
				t.Fatalf("%q: %+v, sent before: %v", c, a, again)
			}
			if a.Repeated = false; again && a != first {
				t.Fatalf("%q again: %+v, first %+v", c, a, first)
			}
			sent[c] = a
		}
		if n := records(t, s, "sig:"); n != len(sent) {
			t.Fatalf("%q %q and %q %q are %d signals, want %d", name1, id1, name2, id2, n, len(sent))
		}
		for i, err := range e.Signals(ctx, "o:1") {
			if _, ok := sent[[2]string{i.Name, i.ID}]; err != nil || !ok {
				t.Fatalf("listed is %+v, %v", i, err)
			}
		}
	})
}

func records(t *testing.T, s storage.Storage, prefix string) (n int) {
	t.Helper()
	for _, err := range storage.All(t.Context(), s, storage.Prefix([]byte(prefix))) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func isName(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s)
}
