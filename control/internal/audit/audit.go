package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Row says that somebody called an operation: ctl:audit:{ns}:{ULID}.
type Row struct {
	ID             string `cbor:"1,keyasint"` // a ULID
	KeyID          string `cbor:"2,keyasint,omitempty"`
	Project        string `cbor:"3,keyasint,omitempty"` // of the key
	Environment    string `cbor:"4,keyasint,omitempty"`
	Action         string `cbor:"5,keyasint"`
	Resource       string `cbor:"6,keyasint"`
	Result         string `cbor:"7,keyasint"` // success or failure
	IP             string `cbor:"8,keyasint,omitempty"`
	UserAgent      string `cbor:"9,keyasint,omitempty"`
	CreatedAt      int64  `cbor:"10,keyasint"`
	Lane           string `cbor:"11,keyasint"`
	Deduped        bool   `cbor:"12,keyasint,omitempty"`
	CorrelationID  string `cbor:"13,keyasint"`
	RunID          string `cbor:"14,keyasint,omitempty"`
	IdempotencyKey string `cbor:"15,keyasint,omitempty"`
	Status         int    `cbor:"16,keyasint"`
	Code           string `cbor:"17,keyasint,omitempty"` // of the problem
	Count          int    `cbor:"18,keyasint,omitempty"` // how many the row stands for; 0: one
	Reason         string `cbor:"19,keyasint,omitempty"` // what the client gave as the reason
}

// What came of a call.
const (
	Success = "success"
	Failure = "failure"
)

// maxAuditText is the length in bytes to which texts of a row are cut.
const maxAuditText = 256

// Short cuts a text, and takes out what would break a line of a log.
func Short(s string) string {
	if len(s) <= maxAuditText && plain(s) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= maxAuditText {
		return s
	}
	n := maxAuditText
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// plain reports whether s is ASCII without control characters.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// key is where a row is stored. Rows of nobody are the home namespace's.
func (row *Row) key(home string) []byte {
	if row.KeyID == "" {
		return keys.ControlAudit(home, row.ID)
	}
	return keys.ControlAudit(row.Project+"/"+row.Environment, row.ID)
}

// Put returns the operation that stores a row.
func (row *Row) Put(home string) (storage.Op, error) {
	at := row.key(home)
	data, err := record.Seal(at, records.Version, row, nil)
	return storage.Put(at, data), err
}

// foldFor is how long refusals of one kind are counted in one row.
const foldFor = 10 * time.Second

// A FoldKey names refusals that are counted together: what no rate limits must not fill the store.
type FoldKey struct {
	Code   string
	Tenant string // the namespace of the key; "": there is none
	By     string // the network, or the id of the key
}

// A fold is the row of such refusals, and until when it counts.
type fold struct {
	row     *Row
	until   time.Time
	written int // the Count that is stored
}

// Limits of what an auditor has in memory.
const (
	Delay         = 50 * time.Millisecond
	Patience      = 10 * time.Second           // how long a store that fails is tried
	Latest        = foldFor + Delay + Patience // how long after its time a row may be written, for the last time, unless many wait while the store is away
	maxAuditRows  = 20_000
	maxFolds      = 1000 // at once; so many rows at most in foldFor, and one for each code and namespace
	maxAuditBatch = 200
)

// An Auditor writes audit rows up to Delay after the call. While it has any, a goroutine
// writes them.
type Auditor struct {
	store storage.Storage
	home  string // the namespace of rows of nobody
	log   *slog.Logger

	work sync.WaitGroup  // the goroutine
	life context.Context // of writes; it ends Patience after Close at the latest
	end  context.CancelFunc
	turn chan struct{} // has an element during a flush

	mu      lock.Mutex
	rows    []*Row // to be written
	folds   map[FoldKey]*fold
	writing bool          // the goroutine runs
	lost    int           // rows that were dropped since the last log message
	wake    chan struct{} // has an element if rows came while the goroutine waited for a fold
	closing chan struct{}
	closed  bool
}

// New returns an auditor of a store. home is the namespace of rows that are nobody's.
func New(s storage.Storage, home string, log *slog.Logger) *Auditor {
	a := &Auditor{store: s, home: home, log: log, folds: map[FoldKey]*fold{}, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), closing: make(chan struct{})}
	a.life, a.end = context.WithCancel(context.Background())
	return a
}

// Add has a row written soon.
func (a *Auditor) Add(row *Row) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enqueue(row)
}

// Refused has a refusal written soon: the first of its kind in foldFor as a row, and how many others
// there were at the end of that time.
func (a *Auditor) Refused(k FoldKey, row *Row) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.counted(k, now) {
		return
	}
	if len(a.folds) >= maxFolds {
		k.By = "" // too many networks or keys: all others are one
		if a.counted(k, now) {
			return
		}
	}
	row.Count = 1
	stored := *row
	stored.Count = 0
	a.folds[k] = &fold{row: row, until: now.Add(foldFor), written: 1}
	a.enqueue(&stored)
}

// counted adds one to the fold of k, while mu is held. It returns false if there is none that counts; one whose time is over, and which no
// flush has come for, ends.
func (a *Auditor) counted(k FoldKey, now time.Time) bool {
	f := a.folds[k]
	switch {
	case f == nil:
		return false
	case now.Before(f.until):
		f.row.Count++
		return true
	}
	a.unfold(k, f)
	return false
}

// unfold ends a fold while mu is held.
func (a *Auditor) unfold(k FoldKey, f *fold) {
	if f.row.Count > f.written {
		counted := *f.row
		// The row itself may not be written yet, and a batch has a key once.
		a.rows = slices.DeleteFunc(a.rows, func(r *Row) bool { return r.ID == counted.ID })
		if len(a.rows) < maxAuditRows {
			a.rows = append(a.rows, &counted)
		} else {
			a.lost++
		}
	}
	delete(a.folds, k)
}

// enqueue adds a row while mu is held.
func (a *Auditor) enqueue(row *Row) {
	if len(a.rows) >= maxAuditRows || a.closed {
		a.lost++
	} else {
		if a.rows = append(a.rows, row); len(a.rows) == 1 && a.writing {
			select {
			case a.wake <- struct{}{}:
			default:
			}
		}
	}
	if !a.writing && !a.closed {
		a.writing = true
		a.work.Go(a.write)
	}
}

// write writes rows until there are none and no fold counts.
func (a *Auditor) write() {
	for {
		wait, done := a.next()
		if done {
			return
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-a.wake: // a row does not wait until a fold ends
			t.Stop()
			continue
		case <-a.closing:
			t.Stop()
		}
		a.Flush(a.life)
	}
}

// next returns how long to wait before the next flush. It is done if there is nothing to wait for.
func (a *Auditor) next() (wait time.Duration, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.rows) > 0 {
		return Delay, false
	}
	if len(a.folds) == 0 || a.closed {
		a.writing = false
		return 0, true
	}
	wait = foldFor
	now := time.Now()
	for _, f := range a.folds {
		wait = min(wait, f.until.Sub(now))
	}
	return max(wait, Delay), false
}

// Flush writes what there is. When it returns, the rows that an earlier flush had taken are written, too.
func (a *Auditor) Flush(ctx context.Context) {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	a.mu.Lock()
	now := time.Now()
	for k, f := range a.folds {
		if a.closed || !now.Before(f.until) {
			a.unfold(k, f)
		}
	}
	rows, lost := a.rows, a.lost
	a.rows, a.lost = nil, 0
	a.mu.Unlock()
	if lost > 0 {
		a.log.Error("audit rows are lost: the store is too slow for them", "rows", lost)
	}
	for len(rows) > 0 {
		n := min(len(rows), a.batch())
		if err := a.Commit(ctx, rows[:n]); err != nil {
			a.log.Error("audit rows are lost: the store did not take them", "rows", n, "error", err)
		}
		rows = rows[n:]
	}
}

// batch is how many rows are written at once.
func (a *Auditor) batch() int {
	n := maxAuditBatch
	if most := a.store.Capabilities().MaxBatch; most.Ops > 0 {
		n = min(n, most.Ops)
	}
	if most := a.store.Capabilities().MaxBatch; most.Bytes > 0 {
		n = min(n, max(1, most.Bytes/4096)) // texts of a row are cut, so it is smaller
	}
	return n
}

// Commit writes rows. A row is the same however often it is written, so an unknown outcome does no
// harm.
func (a *Auditor) Commit(ctx context.Context, rows []*Row) error {
	var b storage.Batch
	for _, row := range rows {
		op, err := row.Put(a.home)
		if err != nil {
			return err
		}
		b.Ops = append(b.Ops, op)
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := a.store.Commit(ctx, b)
		if err == nil || errors.Is(err, storage.ErrClosed) || errors.Is(err, storage.ErrInvalidBatch) {
			return err
		}
		if !backoff.Wait(ctx, pause) {
			return err
		}
	}
}

// Close writes what there is, within Patience, and has rows that come later lost.
func (a *Auditor) Close() {
	defer a.end()
	defer time.AfterFunc(Patience, a.end).Stop()
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.closing)
	}
	a.mu.Unlock()
	a.work.Wait()
	a.Flush(a.life)
}

// FirstULID returns the least ULID of a time, or "" before 1970.
func FirstULID(at time.Time) string {
	ms := at.UnixMilli()
	if at.After(time.UnixMilli(ms)) {
		ms++ // rows of this millisecond may be earlier
	}
	var id ulid.ULID
	if err := id.SetTime(uint64(min(max(ms, 0), int64(ulid.MaxTime())))); err != nil {
		return ""
	}
	return id.String()
}

// auditRetention is how long rows are kept.
const auditRetention = 90 * 24 * time.Hour

// Forget removes rows that are too old, of all namespaces. It passes over keys that cannot be read, and returns an error that
// names the first of them.
func Forget(ctx context.Context, s storage.Storage) error {
	var unreadable error
	all := keys.ControlAudits("")
	until := FirstULID(time.Now().Add(-auditRetention))
	for {
		all.Limit = 1
		first, err := s.Scan(ctx, all)
		if err != nil || len(first) == 0 {
			return cmp.Or(err, unreadable)
		}
		ns, _, err := keys.ControlNames(first[0].Key)
		if err != nil { // it must not keep what is behind it
			unreadable = cmp.Or(unreadable, err)
			all.Start = append(first[0].Key, 0)
			continue
		}
		old := keys.ControlAudits(ns)
		all.Start = old.End
		old.End = keys.ControlAudit(ns, until)
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.DeleteRange(old)}}); err != nil {
			return err
		}
	}
}
