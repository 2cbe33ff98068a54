package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/childproc"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/testdata/releases/shop"
)

// span is how long an engine works at most before it is killed, on a machine that does nothing else.
const span = 500 * time.Millisecond

// Turns has both releases alternate on a store.
type turns struct {
	at, before string
	families   families
	plan       plan
	span       time.Duration
	open       map[int]bool
	trouble    []string

	// What was met.
	executed, updated, fired int            // runs of the release before, answers, and runs of the schedule
	due                      int            // of its times were in a turn of the release before
	met                      map[string]int // records that the release before did not know, by family
	wentOn                   string
}

// alternate has the release before and this one alternate: so many turns of each, and more and longer ones if these have
// not met everything, as on a busy machine. Each ends with a kill, with workflows, schedules, updates and bulk operations
// in progress. The release before changes no record that it does not know. At the end, an engine of this release
// finishes everything.
func alternate(ctx context.Context, at, before string, fs families, rounds int) error {
	t := &turns{at: at, before: before, families: fs, open: map[int]bool{}, met: map[string]int{},
		plan: plan{Store: at, Next: 1, Began: time.Now().Truncate(time.Second).Add(time.Second)}}
	first, err := launch(before, at) // whose store it is
	if err != nil {
		return err
	}
	defer first.kill()
	if err := first.stop(); err != nil {
		return fmt.Errorf("the release before makes the store: %w", err)
	}
	least := rounds >= 6 // fewer need not meet everything
	for turn := 1; turn <= rounds || least && turn <= 5*rounds && t.missing() != ""; turn++ {
		t.plan.Turn, t.span = turn, span*time.Duration((turn+rounds-1)/rounds)
		if err := t.now(ctx); err != nil {
			return fmt.Errorf("turn %d of this release: %w", turn, err)
		}
		if err := t.then(ctx); err != nil {
			return fmt.Errorf("turn %d of the release before: %w", turn, err)
		}
	}
	t.plan.Last = true
	if err := t.now(ctx); err != nil {
		return fmt.Errorf("this release finishes everything: %w", err)
	}
	if err := t.touched(ctx); err != nil {
		return err
	}
	kind, _, _ := strings.Cut(at, ":")
	fmt.Printf("%s: %d turns of each release: %d workflows, of which the release before executed some %d times; %d updates answered; "+
		"a schedule fired %d times, of which %d came while the release before had its turn; one that waited for a run which that ended went on %s later\n",
		kind, t.plan.Turn, t.plan.Next-1, t.executed, t.updated, t.fired, t.due, t.wentOn)
	fmt.Printf("%s: the release before left alone %s\n", kind, t.counts())
	if what := t.missing(); least && what != "" {
		return fmt.Errorf("after %d turns there was %s in a turn of the release before", t.plan.Turn, what)
	}
	if least && (t.updated == 0 || t.wentOn == "") {
		return fmt.Errorf("nothing was put to the test: %d updates; a schedule that went on: %q", t.updated, t.wentOn)
	}
	return nil
}

func (t *turns) counts() string {
	var counts []string
	for _, f := range slices.Sorted(maps.Keys(t.met)) {
		counts = append(counts, fmt.Sprint(t.met[f], " ", f))
	}
	return strings.Join(counts, ", ")
}

// missing returns what the turns so far have not met, or nothing.
func (t *turns) missing() string {
	for _, f := range []string{"sch:", "due:", "bulk:", "upd:", "upr:", ":upd:", ":pub:", "hook:", "hk:", "stream:", "chunk:"} {
		if t.met[f] == 0 {
			return "no record of the family " + f
		}
	}
	switch {
	case t.executed == 0:
		return "no execution of a workflow"
	case t.due == 0:
		return "no time of a schedule"
	}
	return ""
}

// now is a turn of this release.
func (t *turns) now(ctx context.Context) error {
	t.plan.Open = slices.Sorted(maps.Keys(t.open))
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := childproc.Child{Program: self, Env: todayEnv, Plan: t.plan, Stall: time.Minute,
		Hear: func(line string) (time.Duration, bool) {
			t.hear(line)
			return rand.N(t.span), line == "works" && !t.plan.Last
		},
	}
	killed, err := child.Run(ctx)
	switch {
	case err != nil || len(t.trouble) > 0:
		return errors.Join(err, errors.New(strings.Join(t.trouble, "\n")))
	case killed == t.plan.Last:
		return errors.New("it ended by itself")
	case t.plan.Last && len(t.open) > 0:
		return fmt.Errorf("%d workflows are open", len(t.open))
	}
	return nil
}

func (t *turns) hear(line string) {
	word, rest, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(rest)
	switch word {
	case "open":
		t.open[n], t.plan.Next = true, n+1
	case "ended":
		delete(t.open, n)
	case "updated":
		t.updated++
	case "fired":
		t.fired = n
	case "went":
		t.wentOn = strings.TrimPrefix(rest, "on ")
	case "trouble":
		t.trouble = append(t.trouble, line)
	}
}

// then is a turn of the release before.
func (t *turns) then(ctx context.Context) error {
	if err := t.quiet(ctx); err != nil {
		return err
	}
	var left map[string]string
	var orders []string
	err := with(ctx, t.at, func(s storage.Storage) (err error) {
		if orders, err = t.orders(ctx, s); err != nil {
			return err
		}
		if err := t.families.plant(ctx, s, true); err != nil {
			return err
		}
		left, err = t.families.read(ctx, s)
		return err
	})
	if err != nil {
		return err
	}
	for key := range left {
		if f := t.families.of([]byte(key)); !strings.HasSuffix(key, "planted") {
			t.met[f]++
		}
	}
	began := time.Now()
	old, err := launch(t.before, t.at)
	if err != nil {
		return err
	}
	defer old.kill()
	for _, o := range orders {
		if answer := old.ask(o); answer != o+" <nil>" {
			return fmt.Errorf("%s: it says %s", o, answer)
		}
		if run, ok := strings.CutPrefix(o, "deliver "); ok {
			t.plan.Delivered = run
		}
	}
	time.Sleep(rand.N(t.span)) // and is killed while it does whatever it likes
	if t.due == 0 {            // a time of the schedule passes at least once
		time.Sleep(time.Until(began.Truncate(time.Second).Add(time.Second)))
	}
	old.die()
	t.executed += len(old.executed)
	for _, k := range old.executed {
		if k == string(shop.Newer) {
			return errors.New("it has executed a run that needs this release")
		}
	}
	t.due += int(time.Now().Unix() - began.Unix())
	if err := t.quiet(ctx); err != nil {
		return err
	}
	return with(ctx, t.at, func(s storage.Storage) error {
		now, err := t.families.read(ctx, s)
		if err != nil {
			return err
		}
		if changed := changes(left, now); len(changed) > 0 {
			return fmt.Errorf("it has changed records that it does not know:\n%s", strings.Join(changed, "\n"))
		}
		return t.families.plant(ctx, s, false)
	})
}

// orders returns what the release before is to do in its turn: approve what is delayed, which must not begin early,
// cancel what is to begin later, and end the run for which a schedule waits.
func (t *turns) orders(ctx context.Context, s storage.Storage) (orders []string, err error) {
	eng, err := engine.New(config(s))
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	for _, status := range []checkpoint.Status{checkpoint.StatusPending, checkpoint.StatusRunning} {
		for i, err := range eng.List(ctx, engine.Filter{Workflow: shop.Name, Status: status}) {
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(i.ID, waits+"@") {
				orders = append(orders, "deliver "+i.ID)
			}
			number, ok := strings.CutPrefix(i.ID, "delivery-")
			n, err := strconv.Atoi(number)
			switch {
			case !ok || err != nil || status != checkpoint.StatusPending:
			case kindOf(n) == delayed:
				orders = append(orders, "approve "+i.ID)
			case kindOf(n) == cancelled && i.Cancel == nil:
				orders = append(orders, "cancel "+i.ID)
			}
		}
	}
	return orders, nil
}

// quiet waits until what a killed process has sent to a server is done.
func (t *turns) quiet(ctx context.Context) error {
	if !strings.HasPrefix(t.at, "postgres:") {
		return nil
	}
	conn, err := pgx.Connect(ctx, t.at)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for {
		var others int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()`).Scan(&others)
		if err != nil || others == 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// touched has a process of the release before delete a record that it does not know. The comparison must find that,
// else it finds nothing.
func (t *turns) touched(ctx context.Context) error {
	read := func() (records map[string]string, err error) {
		err = with(ctx, t.at, func(s storage.Storage) error {
			records, err = t.families.read(ctx, s)
			return err
		})
		return records, err
	}
	left, err := read()
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return errors.New("no record is left that the release before does not know")
	}
	key := slices.Min(slices.Collect(maps.Keys(left)))
	old, err := launch(t.before, t.at)
	if err != nil {
		return err
	}
	defer old.kill()
	if answer := old.ask("touch " + key); answer != "touch <nil>" {
		return fmt.Errorf("touch %s: it says %s", key, answer)
	}
	old.die()
	now, err := read()
	if err != nil {
		return err
	}
	if changed := changes(left, now); !slices.Equal(changed, []string{key + " is gone"}) {
		return fmt.Errorf("the release before has deleted %s, and the comparison finds %q", key, changed)
	}
	return nil
}
