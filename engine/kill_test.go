package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// chargerEnv has the orders of a process that runs one workflow with one charge.
const chargerEnv = "WEFT_TEST_CHARGER"

// A charger is such a process, as it is told.
type charger struct {
	Store, Where string // which, and the path or URL
	Bank         string // URL of the other side, which lives in another process
	Verify       bool
	Die          string // at which window, by its own hand; the bank sees to the others
	LeaseTTL     time.Duration
}

func (c charger) open() (storage.Storage, error) {
	switch c.Store {
	case "sqlite":
		return sqlite.Open(c.Where, nil)
	case "bolt":
		return bolt.Open(c.Where, nil)
	}
	return postgres.Open(ctx, c.Where, nil)
}

// run starts the workflow, or finds it, and prints what it has learnt.
func (c charger) run() error {
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.Close()
	charge := &charging{
		Name:           "charge",
		IdempotencyKey: func(order string) string { return "order/" + order },
		Timeout:        20 * time.Second,
		Run: func(ctx context.Context, _ string) (string, error) {
			return c.ask(ctx, "charge")
		},
	}
	if c.Verify {
		charge.Settle, charge.VerifyRetry = time.Millisecond, activity.Retry{MaxAttempts: 2, Backoff: 10 * time.Millisecond}
		charge.Verify = func(ctx context.Context, _ string) (activity.Verification[string], error) {
			answer, err := c.ask(ctx, "find")
			if err != nil {
				return activity.Indeterminate[string](err.Error()), nil
			}
			return map[string]activity.Verification[string]{
				"not completed":      activity.NotCompleted[string](),
				"completed":          activity.CompletedWithResult("verified"),
				"result unavailable": activity.CompletedResultUnavailable[string](),
				"indeterminate":      activity.Indeterminate[string]("pending"),
			}[answer], nil
		}
	}
	wf := flow("checkout", func(run *engine.Run) (string, error) {
		out, err := charge.Do(run, "42")
		if err != nil {
			return fmt.Sprintf("%T", err), nil
		}
		return out, nil
	})
	eng, err := engine.New(engine.Config{
		Storage:      &dying{Storage: s, at: c.Die},
		Workflows:    []engine.Definition{wf},
		Logger:       quiet,
		PollInterval: 50 * time.Millisecond,
		LeaseTTL:     c.LeaseTTL,
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- eng.Run(running) }()
	h, err := wf.Start(ctx, eng, "o", "")
	var learnt string
	if err == nil {
		learnt, err = h.Result(ctx)
		for tries := 0; err != nil && tries < 100; tries++ { // while it was paused, the time of a read may have run out
			time.Sleep(50 * time.Millisecond)
			learnt, err = h.Result(ctx)
		}
	}
	stop()
	<-over // a process that was paused too long comes back deposed
	eng.Close()
	if err == nil {
		fmt.Println(learnt)
	}
	return err
}

// ask sends a request of the activity or its verifier to the bank.
func (c charger) ask(ctx context.Context, what string) (string, error) {
	token := strconv.FormatUint(activity.InfoFrom(ctx).FencingToken, 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Bank+"/"+what+"?token="+token, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// dying kills its process around a commit that has to do with the charge: the first
// is its departure, the second its outcome.
type dying struct {
	storage.Storage
	at string
	mu sync.Mutex
	n  int
}

func (d *dying) Unwrap() storage.Storage { return d.Storage }

func (d *dying) Commit(ctx context.Context, b storage.Batch) error {
	n := 0
	if touches(b, "act:") {
		d.mu.Lock()
		d.n++
		n = d.n
		d.mu.Unlock()
	}
	switch {
	case d.at == "W0" && n == 1, d.at == "W4" && n == 2:
		die()
	case d.at == "W5" && n == 2:
		go func() {
			time.Sleep(rand.N(2 * time.Millisecond))
			die()
		}()
	}
	err := d.Storage.Commit(ctx, b)
	if d.at == "W1" && n == 1 || d.at == "W6" && n == 2 {
		die()
	}
	return err
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// A killing is one round: a charge whose process is killed in a window, the bank that
// counts, and the answer that its verifier gets then.
type killing struct {
	store, window, answer string // no answer: there is no verifier
	lease                 time.Duration

	mu                       sync.Mutex
	attempts, effects, asked int
	tokens                   []uint64
	first                    *exec.Cmd
	resume                   chan struct{} // W7: the first process goes on
}

// ServeHTTP is the bank.
func (k *killing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.URL.Path == "/find" {
		k.asked++
		fmt.Fprint(w, k.answer)
		return
	}
	token, _ := strconv.ParseUint(r.URL.Query().Get("token"), 10, 64)
	k.tokens = append(k.tokens, token)
	k.attempts++
	n := k.attempts
	if n == 1 && k.window == "W2" {
		_ = k.first.Process.Kill()
		return
	}
	k.effects++
	switch {
	case n == 1 && k.window == "W3":
		_ = k.first.Process.Kill()
		return
	case n == 1 && k.window == "W7":
		_ = k.first.Process.Signal(syscall.SIGSTOP)
		k.mu.Unlock()
		<-k.resume
		k.mu.Lock()
	}
	fmt.Fprint(w, "run ", n)
}

// play kills the first process in its window, lets a second one finish, and checks
// what came of it.
func (k *killing) play(t *testing.T, where string) {
	name := strings.Join([]string{k.store, k.window, k.answer}, "/")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	k.resume = make(chan struct{})
	bank := httptest.NewServer(k)
	bank.Config.SetKeepAlivesEnabled(false)
	defer bank.Close()
	resume := sync.OnceFunc(func() { close(k.resume) })
	defer resume()
	c := charger{Store: k.store, Where: where, Bank: bank.URL, Verify: k.answer != "", Die: k.window, LeaseTTL: cmp.Or(k.lease, 5*time.Second)} // not lost on a slow machine
	first, heard := k.begin(ctx, t, c)
	if first == nil {
		return
	}
	if k.window == "W7" {
		for k.count() == 0 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	} else if err := first.Wait(); err == nil && k.window != "W5" { // there it may have been quicker
		t.Errorf("%s: the first process was not killed", name)
		return
	}
	c.Die = ""
	second, out := k.begin(ctx, t, c)
	if second == nil {
		return
	}
	if err := second.Wait(); err != nil {
		t.Errorf("%s: the second process: %v", name, err)
	}
	learnt := strings.TrimSpace(out.String())
	if k.window == "W7" {
		_ = first.Process.Signal(syscall.SIGCONT)
		resume()
		if err := first.Wait(); err != nil || strings.TrimSpace(heard.String()) != learnt {
			t.Errorf("%s: the first process learnt %q, %v; the second %q", name, heard, err, learnt)
		}
	}
	k.check(t, name, learnt)
}

// begin starts a process that follows these orders. It has reported why if there is none.
func (k *killing) begin(ctx context.Context, t *testing.T, c charger) (*exec.Cmd, *strings.Builder) {
	orders, err := json.Marshal(c)
	exe, e := os.Executable()
	if err = errors.Join(err, e); err != nil {
		t.Error(err)
	}
	cmd, out := exec.CommandContext(ctx, exe), new(strings.Builder)
	cmd.Env = append(os.Environ(), chargerEnv+"="+string(orders))
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil, nil
	}
	if k.first == nil {
		k.first = cmd
	}
	return cmd, out
}

func (k *killing) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.attempts
}

// check compares what the workflow learnt, and what the bank has seen, with what the
// window and the answer permit.
func (k *killing) check(t *testing.T, name, learnt string) {
	attempts, effects, asks := 1, 1, k.answer != ""
	want := map[string]string{
		"completed":          "verified",
		"result unavailable": "*activity.ResultUnavailableError",
		"indeterminate":      "*activity.IndeterminateError",
		"":                   "*activity.IndeterminateError",
	}[k.answer]
	switch k.window {
	case "W0", "W6":
		want, asks = "run 1", false
	case "W1":
		attempts, effects = 0, 0
	case "W2":
		effects = 0
	case "W5":
		if learnt == "run 1" && k.asked == 0 {
			want, asks = learnt, false // it had landed
		}
	}
	if want == "" { // not completed: another attempt, also if that is not true
		attempts, effects = attempts+1, effects+1
		want = fmt.Sprint("run ", attempts)
	}
	if learnt != want || k.attempts != attempts || k.effects != effects || (k.asked > 0) != asks {
		t.Errorf("%s: learnt %q after %d attempts, %d effects and %d questions; want %q, %d, %d and questions: %v",
			name, learnt, k.attempts, k.effects, k.asked, want, attempts, effects, asks)
	}
	for i := 1; i < len(k.tokens); i++ {
		if k.tokens[i] <= k.tokens[i-1] {
			t.Errorf("%s: fencing tokens %d, want them rising", name, k.tokens)
		}
	}
}

// ACT-50, ACT-51, ACT-52, AC1 to AC3, AC5 to AC7: the process is really killed, in each
// of the windows W0 to W6, and paused past its lease in W7; the effects are counted by
// another process. Nothing is a success that no record and no verifier vouches for, and
// nothing is dispatched twice unless the verifier permits it. Each window meets one
// answer on each store, W7 and under WEFT_TORTURE every one.
func TestKilledInEachWindow(t *testing.T) {
	torture.Slow(t)
	answers := []string{"not completed", "completed", "result unavailable", "indeterminate", ""}
	dir := t.TempDir()
	var rounds sync.WaitGroup
	places := make(chan struct{}, 4)
	played := 0
	play := func(store, window, answer string) {
		played++
		k := &killing{store: store, window: window, answer: answer}
		where := filepath.Join(dir, fmt.Sprint("store", played))
		if store == "postgres" {
			where = pgtest.URL(t)
		}
		places <- struct{}{}
		rounds.Go(func() {
			defer func() { <-places }()
			k.play(t, where)
		})
	}
	for i, store := range []string{"sqlite", "bolt", "postgres"} {
		for j, window := range []string{"W0", "W1", "W2", "W3", "W4", "W5", "W6", "W7"} {
			if window == "W7" && store != "postgres" {
				continue // has one opener: who is paused keeps others out
			}
			for n, answer := range answers {
				if window == "W7" || os.Getenv("WEFT_TORTURE") != "" || n == (i+j)%len(answers) {
					play(store, window, answer)
				}
			}
		}
	}
	rounds.Wait()
	t.Logf("%d rounds", played)
}
