package main_test

import (
	"strings"
	"testing"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/storage"
)

// A hook is resumed by its token, in the store and over a control plane. The token may come from standard input, and no
// error has it.
func TestHooks(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		begin := func(id string) {
			t.Helper()
			k.with(t, func(store storage.Storage) {
				svc := serve(t, store, invoice)
				if _, err := svc.StartWorkflow(t.Context(), &weft.StartRequest{Workflow: "invoice", ID: id, Input: id}); err != nil {
					t.Fatal(err)
				}
				svc.until(t, id, func(i weft.Info) bool { return len(i.Waiting) > 0 && i.Owner == "" })
				svc.stop()
			})
		}
		received := func(id, want string) {
			t.Helper()
			k.with(t, func(store storage.Storage) {
				svc := serve(t, store, invoice)
				svc.until(t, id, terminal)
				var got string
				if err := svc.Result(t.Context(), id, "invoice", &got); err != nil || got != want {
					t.Errorf("%s: got %q, %v, want %q", id, got, err, want)
				}
				svc.stop()
			})
		}

		begin("in-store")
		s.fails(2, "add --write", "hooks", "resume", "in-store", "--payload", `"r1"`)
		s.fails(2, "the payload is not JSON", "hooks", "resume", "in-store", "--payload", "r1", "--write")
		s.fails(2, "standard input has the token, or the --payload", "hooks", "resume", "-", "--payload", "-", "--write")
		if out, notes, code := s.run("hooks", "resume", "s3cret", "--write"); code != 1 || out != "" || !strings.Contains(notes, "no open hook has the token") || strings.Contains(notes, "s3cret") {
			t.Errorf("of nobody: %d, %q, %q", code, out, notes)
		}
		for range 2 { // the same id resumes once
			if got := s.done("hooks", "resume", "in-store", "--payload", `"r1"`, "--id", "evt_1", "--write"); got != "evt_1\n" {
				t.Errorf("got %q", got)
			}
		}
		s.fails(1, "evt_1", "hooks", "resume", "in-store", "--payload", `"r2"`, "--id", "evt_1", "--write")
		received("in-store", "r1")

		begin("over-http")
		x := s.serveWith(nil, "--demo")
		x.fails(1, "not_found", "hooks", "resume", "nobodys")
		x.input = "over-http\n"
		if got := x.done("hooks", "resume", "-", "--payload", `"r2"`, "--id", "evt_2", "--json"); !strings.Contains(got, `"evt_2"`) || !strings.Contains(got, `"over-http"`) {
			t.Errorf("got %s", got)
		}
		x.stop()
		received("over-http", "r2")
	})
}
