package engine_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// busyEnv has the orders of a process that works on a store until it is killed.
const busyEnv = "WEFT_TEST_BUSY"

// A busy process is one, as it is told. It appends to the file Log, a line in one write,
// what it was acknowledged, as soon as it was.
type busy struct {
	Store, Where, Log string
	Clients           int
}

// diskLease is what the leases of busy processes last, where there are leases.
const diskLease = time.Second

var diskNext = &signal.Signal[string]{Name: "next"}

func diskWant(id string) string { return "began " + id + ", paid for " + id }

// diskWork is a workflow with something of everything: an activity without a key and one
// with a key, a signal, a timer.
func diskWork(token func(uint64)) *engine.Workflow[string, string] {
	begin := &activity.Activity[string, string]{Name: "begin", Run: func(ctx context.Context, id string) (string, error) {
		token(activity.InfoFrom(ctx).FencingToken)
		return "began " + id, nil
	}}
	pay := &activity.Activity[string, string]{
		Name:           "pay",
		Idempotent:     true,
		IdempotencyKey: func(id string) string { return "for " + id },
		Run: func(ctx context.Context, id string) (string, error) {
			token(activity.InfoFrom(ctx).FencingToken)
			return "paid for " + id, nil
		},
	}
	return &engine.Workflow[string, string]{Name: "work", Func: func(run *engine.Run, id string) (string, error) {
		begun, err := begin.Do(run, id)
		if err != nil {
			return "", err
		}
		next, err := diskNext.Receive(run)
		if err != nil {
			return "", err
		}
		if err := run.Sleep(2 * time.Millisecond); err != nil {
			return "", err
		}
		paid, err := pay.Do(run, next)
		return begun + ", " + paid, err
	}}
}

// run works until it is killed.
func (b busy) run() error {
	s, err := charger{Store: b.Store, Where: b.Where}.open()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(b.Log, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }
	work := diskWork(func(token uint64) { say("token %d", token) })
	eng, err := engine.New(engine.Config{
		Storage:      &attested{Storage: s, say: say},
		Workflows:    []engine.Definition{work},
		Logger:       quiet,
		PollInterval: 50 * time.Millisecond,
		LeaseTTL:     diskLease,
	})
	if err != nil {
		return err
	}
	for c := range b.Clients {
		go func() {
			for n := 0; ; n++ {
				id := fmt.Sprint(c, ".", n)
				h, err := work.Start(ctx, eng, id, id)
				if err != nil {
					continue
				}
				say("started %s", id)
				if _, err := diskNext.Send(ctx, eng, id, id, &signal.Options{ID: "next"}); err != nil {
					continue
				}
				say("sent %s", id)
				if out, err := h.Result(ctx); err == nil && out == diskWant(id) {
					say("ended %s", id)
				} else {
					say("wrong %s %q %v", id, out, err)
				}
			}
		}()
	}
	return eng.Run(ctx)
}

// An attested store tells of each commit when it begins and when it is answered, and of
// checkpoints that were acknowledged.
type attested struct {
	storage.Storage
	say     func(string, ...any)
	commits atomic.Uint64
}

func (s *attested) Unwrap() storage.Storage { return s.Storage }

func (s *attested) Commit(ctx context.Context, b storage.Batch) error {
	number := s.commits.Add(1)
	s.say("+ %d", number)
	err := s.Storage.Commit(ctx, b)
	if err == nil {
		for _, a := range journal.AppendedBy(b) {
			s.say("checkpoint %s %d", a.Workflow.ID, a.Entry.Number)
		}
	}
	s.say("- %d", number)
	return err
}

// acked is what a busy process has said.
type acked struct {
	started, sent, ended map[string]bool
	checkpoints          map[string][]uint64
	highest              uint64          // of the tokens
	open                 map[uint64]bool // the commits that were not answered
	wrong                []string
}

func readAcked(t *testing.T, log string) acked {
	t.Helper()
	return acknowledged(readLog(t, log))
}

func readLog(t *testing.T, log string) []byte {
	t.Helper()
	raw, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return raw
}

// acknowledged is what raw, the beginning of a log, tells.
func acknowledged(raw []byte) acked {
	got := acked{started: map[string]bool{}, sent: map[string]bool{}, ended: map[string]bool{}, checkpoints: map[string][]uint64{}, open: map[uint64]bool{}}
	for line := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(line, "\n") {
			break // half a line is none
		}
		word := append(strings.Fields(line), "", "")
		switch number, _ := strconv.ParseUint(cmp.Or(word[2], word[1]), 10, 64); word[0] {
		case "+":
			got.open[number] = true
		case "-":
			delete(got.open, number)
		case "started":
			got.started[word[1]] = true
		case "sent":
			got.sent[word[1]] = true
		case "ended":
			got.ended[word[1]] = true
		case "checkpoint":
			got.checkpoints[word[1]] = append(got.checkpoints[word[1]], number)
		case "token":
			got.highest = max(got.highest, number)
		default:
			got.wrong = append(got.wrong, line)
		}
	}
	return got
}

// A disk is one round: a process works on a store, an image of its files is taken at one
// moment, and it goes on, until it is killed.
type disk struct {
	t      *testing.T
	busy   busy
	inside bool // while a commit is under way; else while none is
	server *pgtest.Server
	cmd    *exec.Cmd

	at    acked // when the image was taken
	tries int
}

func (d *disk) spawn() {
	t := d.t
	t.Helper()
	orders, err := json.Marshal(d.busy)
	exe, e := os.Executable()
	if err := errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(exe)
	d.cmd.Env = append(os.Environ(), busyEnv+"="+string(orders))
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// until waits until the process has had n more ends acknowledged than it had.
func (d *disk) until(n int) {
	d.t.Helper()
	had := len(readAcked(d.t, d.busy.Log).ended)
	for end := time.Now().Add(time.Minute); len(readAcked(d.t, d.busy.Log).ended) < had+n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("the process ends no workflow in a minute: %+v", readAcked(d.t, d.busy.Log))
		}
	}
}

// stop stops the process at a moment that is asked for, and reads what it has said.
func (d *disk) stop() {
	d.t.Helper()
	for d.tries = 1; ; d.tries++ {
		time.Sleep(rand.N(5 * time.Millisecond))
		var status syscall.WaitStatus
		if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			d.t.Fatal(err)
		}
		if _, err := syscall.Wait4(d.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			d.t.Fatalf("the process has ended by itself: %v %v", status, err)
		}
		d.at = readAcked(d.t, d.busy.Log)
		if d.inside == (len(d.at.open) > 0) || d.tries == 500 {
			return
		}
		d.resume()
	}
}

// stopServer does so with the server: the process goes on, so that a commit is under way
// only if it was begun before the first of the server's processes was stopped. It returns
// what starts a copy.
func (d *disk) stopServer() (start func() *pgtest.Server) {
	for d.tries = 0; start == nil; {
		d.tries++
		time.Sleep(rand.N(20 * time.Millisecond))
		var before int64
		d.server.Still(d.t, func() {
			log, err := os.Stat(d.busy.Log) // to read all of it takes longer than a commit
			if err != nil {
				d.t.Fatal(err)
			}
			before = log.Size()
		}, func() {
			raw := readLog(d.t, d.busy.Log)
			d.at = acknowledged(raw)
			begun := acknowledged(raw[:before]).open
			maps.DeleteFunc(d.at.open, func(number uint64, _ bool) bool { return !begun[number] })
			if d.inside == (len(d.at.open) > 0) || d.tries == 500 {
				start = d.server.Copy(d.t)
			}
		})
	}
	return start
}

func (d *disk) resume() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// image returns where a store is that was made from the files at one moment.
func (d *disk) image() charger {
	t := d.t
	t.Helper()
	if d.server != nil {
		image := d.stopServer()()
		return charger{Store: d.busy.Store, Where: image.URL(database(t, d.busy.Where))}
	}
	d.stop()
	if s, err := (charger{Store: d.busy.Store, Where: d.busy.Where}).open(); err == nil {
		s.Close()
		t.Error("the store of a process that is stopped was opened by another")
	}
	from := filepath.Dir(d.busy.Where)
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "-shm") && rand.IntN(2) == 0 {
			continue // SQLite makes it anew
		}
		raw, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(rand.N(100 * time.Millisecond))
	d.resume()
	return charger{Store: d.busy.Store, Where: filepath.Join(to, filepath.Base(d.busy.Where))}
}

// database is the name of the database at url.
func database(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// judge opens a store, compares it with what was acknowledged, and has all that is there
// end. All tokens that it gives meanwhile are above the highest that was given before.
func (d *disk) judge(c charger, was acked, highest uint64) {
	t := d.t
	t.Helper()
	s, err := c.open()
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	defer s.Close()
	var mu sync.Mutex
	var lowest uint64
	work := diskWork(func(token uint64) {
		mu.Lock()
		defer mu.Unlock()
		if lowest == 0 || token < lowest {
			lowest = token
		}
	})
	e := made(t, s, work, func(c *engine.Config) { c.PollInterval, c.LeaseTTL = 50*time.Millisecond, diskLease })
	defer e.Close()
	if err := e.Restored(ctx, 0, audit); err != nil {
		t.Errorf("restored: %v", err)
	}
	for id, numbers := range was.checkpoints {
		there := map[uint64]bool{}
		for _, c := range historyOf(t, e, id) {
			there[c.Number] = true
		}
		for _, n := range numbers {
			if !there[n] {
				t.Errorf("%s: checkpoint %d was acknowledged, and is lost", id, n)
			}
		}
	}
	for id := range was.ended {
		if info := describe(t, e, id); info.Status != checkpoint.StatusCompleted {
			t.Errorf("%s: its end was acknowledged, and it is %s", id, info.Status)
		}
	}
	for id := range was.started {
		describe(t, e, id) // fails if it is not there
	}
	running, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- e.Run(running) }()
	defer func() { stop(); <-over }()
	var ids []string
	for info, err := range e.List(ctx, engine.Filter{}) {
		if err != nil {
			t.Errorf("%s: %v", info.ID, err)
			continue
		}
		ids = append(ids, info.ID)
		if !was.sent[info.ID] {
			_, err := diskNext.Send(ctx, e, info.ID, info.ID, &signal.Options{ID: "next"})
			if err != nil && !errors.Is(err, engine.ErrTerminal) {
				t.Errorf("%s: send: %v", info.ID, err)
			}
		}
	}
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, id := range ids {
		if out, err := work.Handle(e, id).Result(waiting); err != nil || out != diskWant(id) {
			t.Errorf("%s: got %q and error %v, want %q", id, out, err, diskWant(id))
		}
		outcomes, ends := map[string]int{}, 0
		for _, c := range historyOf(t, e, id) {
			for _, event := range c.Events {
				switch event.Kind {
				case checkpoint.KindSettled, checkpoint.KindFired, checkpoint.KindReceived:
					outcomes[event.Operation]++
				case checkpoint.KindEnded:
					ends++
				}
			}
		}
		for operation, n := range outcomes {
			if n > 1 {
				t.Errorf("%s: operation %s has %d outcomes", id, operation, n)
			}
		}
		if ends != 1 || len(outcomes) != 4 {
			t.Errorf("%s: got %d ends and the outcomes %v, want 1 end and 4 outcomes", id, ends, outcomes)
		}
	}
	start(t, work, e, "after", "after")
	if _, err := diskNext.Send(ctx, e, "after", "after", nil); err != nil {
		t.Error(err)
	}
	if out, err := work.Handle(e, "after").Result(waiting); err != nil || out != diskWant("after") {
		t.Errorf("a new workflow: got %q and error %v", out, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if lowest <= highest {
		t.Errorf("got the token %d after the restore, want all of them above %d", lowest, highest)
	}
	for _, family := range []string{"held:", "sig:", "inbox:"} {
		if left := entries(t, s, family); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	}
}

// sound has SQLite look at all of a file that is closed.
func sound(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %s %v", verdict, err)
	}
}

// An image of the files of a store, as they are at one moment while a process works on it,
// has all that was acknowledged before, and nothing half. The process is stopped in the
// middle of a commit in every other round, and between two in the others. Who opens the
// image and calls Restored gives higher tokens than the process ever gave, which went on
// meanwhile; all workflows end. And the process, which was stopped within a commit, has
// lost nothing either. On PostgreSQL it is the server that is stopped. 100 rounds on each store under WEFT_TORTURE.
func TestImageOfADiskInUse(t *testing.T) {
	for store, rounds := range map[string]int{"sqlite": 2, "bolt": 2, "postgres": 1} {
		if os.Getenv("WEFT_TORTURE") != "" {
			rounds = 100
		}
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			var server *pgtest.Server
			if store == "postgres" {
				// It is copied. A commit takes 20 ms, so that it is met.
				server = pgtest.Start(t, "max_wal_size=64MB", "min_wal_size=32MB", "commit_delay=20000", "commit_siblings=0")
			}
			met := map[string]int{}
			for n := range rounds {
				t.Run(strconv.Itoa(n), func(t *testing.T) {
					imageOfADisk(t, store, server, n%2 == 0, met)
				})
				if t.Failed() {
					break
				}
			}
			t.Log(met)
			if !t.Failed() && (met["inside a commit"] == 0 || rounds > 1 && met["between commits"] == 0 || met["ended before"] == 0 || met["going on"] == 0) {
				t.Errorf("met %v, want images inside a commit and between commits, of what had ended and of what was going on", met)
			}
		})
	}
}

func imageOfADisk(t *testing.T, store string, server *pgtest.Server, inside bool, met map[string]int) {
	dir := t.TempDir()
	d := &disk{t: t, inside: inside, server: server, busy: busy{Store: store, Where: filepath.Join(dir, "store.db"), Log: filepath.Join(t.TempDir(), "log"), Clients: 1}}
	if inside {
		d.busy.Clients = 6
	}
	if server != nil {
		d.busy.Where = server.Database(t)
		name := database(t, d.busy.Where)
		t.Cleanup(func() { server.Exec(t, "postgres", `DROP DATABASE `+name+` WITH (FORCE)`) })
	}
	d.spawn()
	defer d.kill()
	d.until(1 + rand.IntN(4))
	image := d.image()
	d.until(2) // it goes on
	d.kill()
	all := readAcked(t, d.busy.Log)
	if len(all.wrong) > 0 {
		t.Errorf("the process said %q", all.wrong)
	}
	d.judge(image, d.at, all.highest)
	if d.server == nil {
		d.judge(charger{Store: store, Where: d.busy.Where}, all, all.highest)
	}
	if store == "sqlite" {
		sound(t, image.Where)
	}
	met["stops"] += d.tries
	met["ended before"] += len(d.at.ended)
	met["going on"] += len(d.at.started) - len(d.at.ended)
	for _, numbers := range d.at.checkpoints {
		met["checkpoints acknowledged before"] += len(numbers)
	}
	if len(d.at.open) > 0 {
		met["inside a commit"]++
	} else {
		met["between commits"]++
	}
}
