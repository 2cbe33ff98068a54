package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A letter is a send of a history, and what it was answered.
type letter struct {
	id, payload string
	at          time.Time // of the acceptance
	conflict    bool
	unknown     bool // whether it was accepted

	received []string // not a send: what the run received, in order
}

// postOffice is what sends and receipts look like where there is one office and
// no fault: insert or read, and received once, in the order of acceptance. A state
// is the letters that were accepted.
var postOffice = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, _ any) []any {
		s, l := state.(string), input.(letter)
		if l.received != nil {
			var accepted []string
			for _, line := range strings.Split(s, "\n") {
				id, _, _ := strings.Cut(line, " ")
				accepted = append(accepted, id)
			}
			if slices.Equal(accepted, l.received) {
				return []any{s}
			}
			return nil
		}
		earlier := ""
		for _, line := range strings.Split(s, "\n") {
			if strings.HasPrefix(line, l.id+" ") {
				earlier = line
			}
		}
		mine := fmt.Sprint(l.id, " ", l.payload, " ", l.at.UnixMicro())
		switch {
		case l.unknown && earlier == "":
			return []any{s, join(s, fmt.Sprint(l.id, " ", l.payload, " ?"))}
		case l.unknown:
			return []any{s}
		case l.conflict:
			if earlier == "" || strings.HasPrefix(earlier, l.id+" "+l.payload+" ") {
				return nil
			}
			return []any{s}
		case earlier == "":
			return []any{join(s, mine)}
		case earlier == mine:
			return []any{s}
		case earlier == fmt.Sprint(l.id, " ", l.payload, " ?"): // accepted at a time that nobody was told
			return []any{strings.Replace(s, earlier, mine, 1)}
		}
		return nil
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}).ToModel()

func join(lines, line string) string {
	if lines == "" {
		return line
	}
	return lines + "\n" + line
}

// until receives approvals up to one with this value.
func until(last string) func(run *engine.Run) (string, error) {
	return func(run *engine.Run) (string, error) {
		for {
			if v, err := approved.Receive(run); v == last || err != nil {
				return "", err
			}
		}
	}
}

// A correspondence is a history of sends to one workflow.
type correspondence struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

func (c *correspondence) add(client int, called time.Time, l letter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	returned := int64(math.MaxInt64)
	if !l.unknown {
		returned = int64(time.Since(epoch))
	}
	c.ops = append(c.ops, porcupine.Operation{ClientId: client, Input: l, Call: int64(called.Sub(epoch)), Return: returned})
}

var epoch = time.Now()

// post sends once, perhaps with little patience, and notes what came of it.
func (c *correspondence) post(r *rand.Rand, client int, to signal.Sender) (answered bool) {
	l := letter{id: strconv.Itoa(r.IntN(6)), payload: "p" + strconv.Itoa(r.IntN(4)/3)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.IntN(4) == 0 {
		time.AfterFunc(time.Duration(r.IntN(300))*time.Microsecond, cancel)
	}
	called := time.Now()
	a, err := approved.Send(ctx, to, "o", l.payload, &signal.Options{ID: l.id})
	l.at, l.conflict = a.AcceptedAt, errors.Is(err, signal.ErrConflict)
	l.unknown = err != nil && !l.conflict
	c.add(client, called, l)
	return !l.unknown
}

// SG1, SG4, SG5, F3, F7: histories of sends, with calls that fail before or after
// they are applied, senders that give up and try again, and kills of the engine
// that receives, are those of an office without faults.
func TestHistoriesOfSends(t *testing.T) {
	torture.Slow(t)
	histories := torture.Rounds(5000, 200, 40)
	seed, _ := seedToPlay(t)
	t.Logf("WEFT_SEED=%d", seed)
	sends, unknown, conflicts, undecided := 0, 0, 0, 0
	for i := range histories {
		c := correspond(t, rand.New(rand.NewPCG(seed, uint64(i))))
		for _, op := range c.ops {
			l := op.Input.(letter)
			sends++
			if l.unknown {
				unknown++
			}
			if l.conflict {
				conflicts++
			}
		}
		switch result := porcupine.CheckOperationsTimeout(postOffice, c.ops, 30*time.Second); result {
		case porcupine.Ok:
		case porcupine.Unknown: // with many sends of unknown outcome there is much to try
			undecided++
		default:
			for _, op := range c.ops {
				t.Logf("client %d, %d to %d: %+v", op.ClientId, op.Call, op.Return, op.Input)
			}
			t.Fatalf("history %d is %v", i, result)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories of %d sends: %d of unknown outcome, %d conflicts; %d histories took too long to check", histories, sends, unknown, conflicts, undecided)
	if undecided > histories/20 {
		t.Errorf("%d of %d histories were not checked to the end", undecided, histories)
	}
	if unknown < sends/50 || conflicts < sends/50 {
		t.Error("too little went wrong for this to mean anything")
	}
}

// correspond plays one history.
func correspond(t *testing.T, r *rand.Rand) *correspondence {
	t.Helper()
	c := &correspondence{}
	s := new(memory.Store)
	wf := flow("w", until("end"))
	var armed atomic.Bool
	client := made(t, storagetest.NewFaulty(s, randomFaults(r, &armed)))
	defer client.Close()
	start(t, wf, client, "o", "")
	p := bootOn(t, storagetest.NewFaulty(s, randomFaults(r, &armed)), wf)
	armed.Store(true)

	var clients sync.WaitGroup
	for n := range 4 {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		to := []signal.Sender{client, p}[n%2]
		clients.Go(func() {
			for range 4 {
				if !c.post(r, n, to) {
					to = client // p may be dead
				}
			}
		})
	}
	time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
	p.kill()
	p = boot(t, s, wf)
	clients.Wait()
	called := time.Now()
	a := send(t, approved, p, "o", "end", "end")
	c.add(9, called, letter{id: "end", payload: "end", at: a.AcceptedAt})
	called = time.Now()
	result(t, wf.Handle(p, "o"))
	c.add(9, called, letter{received: received(t, p)})
	p.kill()
	return c
}

// randomFaults has one of ten calls fail: of reads before they are made, of
// commits also after.
func randomFaults(r *rand.Rand, armed *atomic.Bool) func(storagetest.Call) storagetest.Fault {
	var mu sync.Mutex
	r = rand.New(rand.NewPCG(r.Uint64(), 1))
	return func(c storagetest.Call) storagetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		n := r.IntN(20)
		switch {
		case !armed.Load():
		case n == 0:
			return storagetest.ErrorBefore
		case n == 1 && c.Method == "Commit":
			return storagetest.ErrorAfter
		}
		return storagetest.None
	}
}

// received are the IDs of what a workflow has received, in order.
func received(t *testing.T, p *process) (ids []string) {
	t.Helper()
	for _, cp := range historyOf(t, p.Engine, "o") {
		for _, e := range cp.Events {
			if e.Kind == checkpoint.KindReceived {
				ids = append(ids, e.SignalID)
			}
		}
	}
	return ids
}
