package reads_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A read that keeps failing is tried until it succeeds. The 10th, 100th, 1000th … failed try is logged.
func TestReadsThatKeepFailingAreLogged(t *testing.T) {
	for method, read := range map[string]func(ctx context.Context, s storage.Storage) error{
		"Get": func(ctx context.Context, s storage.Storage) error { _, err := s.Get(ctx, []byte("k")); return err },
		"Scan": func(ctx context.Context, s storage.Storage) error {
			_, err := s.Scan(ctx, storage.Prefix([]byte("k")))
			return err
		},
	} {
		for _, c := range []struct {
			fails int
			want  []string
		}{{9, nil}, {10, []string{"count=10"}}, {150, []string{"count=10", "count=100"}}} {
			synctest.Test(t, func(t *testing.T) {
				inner := new(memory.Store)
				if err := inner.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("k"), []byte("v"))}}); err != nil {
					t.Fatal(err)
				}
				s := storagetest.NewFaulty(inner, func(call storagetest.Call) storagetest.Fault {
					if call.N <= c.fails {
						return storagetest.ErrorBefore
					}
					return storagetest.None
				})
				var log bytes.Buffer
				r := reads.Retrying{Storage: s, Log: slog.New(slog.NewTextHandler(&log, nil)), ID: "o"}
				if err := read(t.Context(), r); err != nil {
					t.Errorf("%s: %v", method, err)
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if len(c.want) == 0 && log.Len() > 0 || len(c.want) > 0 && len(lines) != len(c.want) {
					t.Errorf("%s, %d failed tries: logged %q", method, c.fails, lines)
				}
				for i, want := range c.want {
					if l := lines[i]; !strings.Contains(l, want+" ") || !strings.Contains(l, "workflow=o ") || !strings.Contains(l, "error=") {
						t.Errorf("%s: logged %q, want %s", method, l, want)
					}
				}
			})
		}
	}
}
