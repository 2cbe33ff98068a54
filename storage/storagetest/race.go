package storagetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/storage"
)

func writeIsSeenByAll(t *trial) {
	t.together(4, func(i int) error {
		key := fmt.Sprint("key", i)
		for round := range 25 {
			want := fmt.Sprint(round)
			if err := t.store.Commit(t.Context(), batch(put(key, want))); err != nil {
				return fmt.Errorf("Commit: got %w, want nil", err)
			}
			answer := make(chan error)
			go func() {
				got, err := t.read(t.Context(), key)
				if err == nil && got != want {
					err = fmt.Errorf("Get by another goroutine: got %q, want %q", got, want)
				}
				answer <- err
			}()
			if err := <-answer; err != nil {
				return err
			}
		}
		return nil
	})
}

func oneAbsentWins(t *trial) {
	for round := range 40 {
		key := fmt.Sprint("key", round)
		t.oneWins(key, absent(key))
	}
}

func oneEqualWins(t *trial) {
	for round := range 40 {
		key := fmt.Sprint("key", round)
		t.put(key + "=before")
		t.oneWins(key, equal(key, "before"))
	}
}

// oneWins expects exactly one of 16 batches to be applied.
func (t *trial) oneWins(key string, c storage.Condition) {
	t.Helper()
	var winners atomic.Int32
	var winner atomic.Value
	t.together(16, func(i int) error {
		mine := fmt.Sprint("winner", i)
		err := t.store.Commit(t.Context(), then(when(c), put(key, mine), put(fmt.Sprint(key, ":", i), mine)))
		if err == nil {
			winners.Add(1)
			winner.Store(mine)
			return nil
		}
		if !errors.Is(err, storage.ErrConflict) {
			return fmt.Errorf("Commit of a loser: got %w, want ErrConflict", err)
		}
		return nil
	})
	if n := winners.Load(); n != 1 {
		t.Fatalf("got %d winners of 16, want 1", n)
	}
	if !t.caps.ReadAfterWrite {
		return
	}
	mine := winner.Load().(string)
	t.page(storage.Prefix([]byte(key+":")), key+":"+strings.TrimPrefix(mine, "winner")+"="+mine)
	t.got(key, mine)
}

func noIncrementIsLost(t *trial) {
	const committers, counters, each = 64, 8, 4
	for i := range counters {
		t.put(fmt.Sprintf("n%d=0", i))
	}
	t.together(committers, func(i int) error {
		for range each {
			if err := t.increment(fmt.Sprintf("n%d", i%counters), i%4 == 0); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range counters {
		t.got(fmt.Sprintf("n%d", i), fmt.Sprint(committers/counters*each))
	}
}

// increment adds one to a counter and retries until it succeeds.
func (t *trial) increment(key string, urgent bool) error {
	for {
		old, err := t.read(t.Context(), key)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(old)
		b := then(when(equal(key, old)), put(key, fmt.Sprint(n+1)))
		b.Urgent = urgent
		err = t.store.Commit(t.Context(), b)
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
}

// crowd is the number of concurrent committers. Each of them must get an answer at
// least enough times before any of them stops.
const crowd, enough = 64, 4

// everybodyGetsATurn has a crowd write the same keys, each in its own order, until
// every committer got enough answers. A committer without an answer for a minute is
// taken to be starved.
func everybodyGetsATurn(t *trial) {
	const keys = 8
	begun := time.Now()
	var waiting atomic.Int32
	waiting.Store(crowd)
	seed := t.seed()
	t.together(crowd, func(i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for n := 1; waiting.Load() > 0; n++ {
			b := storage.Batch{Urgent: i == 0}
			if i == 1 {
				b.Ops = append(b.Ops, storage.DeleteRange(storage.Prefix([]byte("mine1:"))))
			}
			b.Ops = append(b.Ops, put(fmt.Sprintf("mine%d:%d", i, n%10), ""))
			for _, k := range rnd.Perm(keys)[:4] {
				b.Ops = append(b.Ops, put(fmt.Sprint("key", k), fmt.Sprint(i)))
			}
			if err := t.store.Commit(t.Context(), b); err != nil {
				waiting.Store(0) // let the others stop too
				return fmt.Errorf("Commit among %d others: got %w, want nil", crowd-1, err)
			}
			if n == enough {
				waiting.Add(-1)
			}
			if left := waiting.Load(); left > 0 && time.Since(begun) > time.Minute {
				return fmt.Errorf("got %d commits of one while %d others had fewer than %d, want turns for all", n, left, enough)
			}
			runtime.Gosched() // without it, commits to an in-memory store would not overlap
		}
		return nil
	})
}

// laterSeesEarlier has each committer make a batch conditional on its own last
// acknowledged write, and all of them on the last acknowledged write of any.
func laterSeesEarlier(t *trial) {
	baton := make(chan int, 1)
	t.put("baton=0")
	baton <- 0
	t.together(crowd, func(i int) error {
		mine := fmt.Sprint("mine", i)
		if err := t.store.Commit(t.Context(), batch(put(mine, "0"))); err != nil {
			return err
		}
		for n := range enough {
			step := then(when(equal(mine, fmt.Sprint(n)), present("baton")), put(mine, fmt.Sprint(n+1)))
			step.Urgent = i%8 == 0
			if err := t.builds(step); err != nil {
				return err
			}
			last := <-baton
			err := t.builds(then(when(equal("baton", fmt.Sprint(last)), equal(mine, fmt.Sprint(n+1))), put("baton", fmt.Sprint(last+1))))
			baton <- last + 1
			if err != nil {
				return err
			}
		}
		return nil
	})
	if t.caps.ReadAfterWrite {
		t.got("baton", fmt.Sprint(crowd*enough))
	}
}

// builds commits a batch whose conditions were made true by acknowledged commits.
func (t *trial) builds(b storage.Batch) error {
	if err := t.store.Commit(t.Context(), b); err != nil {
		return fmt.Errorf("Commit(%s) after what it asks for was acknowledged: got %w, want nil", words(b), err)
	}
	return nil
}

func transfersConserveSum(t *trial) {
	const accounts, start = 6, 100
	for i := range accounts {
		t.put(fmt.Sprintf("account%d=%d", i, start))
	}
	seed := t.seed()
	t.together(8, func(i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for range 25 {
			if err := t.transfer(rnd, accounts); err != nil {
				return err
			}
			if t.caps.ScanConsistency != storage.Snapshot {
				continue
			}
			page, err := t.store.Scan(t.Context(), storage.Prefix([]byte("account")))
			if err != nil {
				return err
			}
			if got := sum(page); got != accounts*start {
				return fmt.Errorf("sum of all accounts in one page: got %d, want %d", got, accounts*start)
			}
		}
		return nil
	})
	page, err := t.store.Scan(t.Context(), storage.Prefix([]byte("account")))
	if got := sum(page); err != nil || got != accounts*start {
		t.Errorf("sum of all accounts in the end: got %d and error %v, want %d", got, err, accounts*start)
	}
}

// transfer moves money between two accounts. It does not retry after a conflict.
func (t *trial) transfer(rnd *rand.Rand, accounts int) error {
	two := rnd.Perm(accounts)
	from, to := fmt.Sprint("account", two[0]), fmt.Sprint("account", two[1])
	a, err := t.read(t.Context(), from)
	if err != nil {
		return err
	}
	b, err := t.read(t.Context(), to)
	if err != nil {
		return err
	}
	m, _ := strconv.Atoi(a)
	n, _ := strconv.Atoi(b)
	amount := rnd.IntN(50)
	err = t.store.Commit(t.Context(), then(when(equal(from, a), equal(to, b)),
		put(from, fmt.Sprint(m-amount)), put(to, fmt.Sprint(n+amount))))
	if errors.Is(err, storage.ErrConflict) {
		return nil
	}
	return err
}

func sum(page []storage.Entry) int {
	total := 0
	for _, e := range page {
		n, _ := strconv.Atoi(string(e.Value))
		total += n
	}
	return total
}

// whileWriting reads on four goroutines while one writes, until each of them has done
// so 60 times.
func (t *trial) whileWriting(write func(n int) error, read func(reader int) error) {
	t.Helper()
	const readers, often = 4, 60
	var reading, written atomic.Int32
	var stopped atomic.Bool
	reading.Store(readers)
	t.together(readers+1, func(i int) error {
		if i == readers {
			defer stopped.Store(true)
			for n := 0; reading.Load() > 0; n++ {
				if err := write(n); err != nil {
					return err
				}
				written.Add(1)
				runtime.Gosched()
			}
			return nil
		}
		defer reading.Add(-1)
		for n := 0; (n < often || written.Load() < often) && !stopped.Load(); n++ {
			if err := read(i); err != nil {
				return err
			}
			runtime.Gosched() // without it, the writer would never run on one processor
		}
		return nil
	})
}

func batchIsSeenWhole(t *trial) {
	t.put(numbered("m", 100)...) // between the two keys
	t.do(put("a", "0"), put("z", "0"))
	t.whileWriting(func(n int) error {
		return t.store.Commit(t.Context(), batch(put("z", fmt.Sprint(n)), put("a", fmt.Sprint(n))))
	}, func(reader int) error {
		page, err := t.store.Scan(t.Context(), storage.Range{Reverse: reader%2 == 0})
		if err != nil {
			return err
		}
		if len(page) != 102 {
			return fmt.Errorf("Scan while values are written: got %d entries, want 102", len(page))
		}
		if first, last := string(page[0].Value), string(page[101].Value); first != last {
			return fmt.Errorf("Scan while both are written together: got %q and %q, want the same", first, last)
		}
		return nil
	})
}

func rangeIsReplacedWhole(t *trial) {
	replace := func(n int) storage.Batch {
		b := batch(storage.DeleteRange(storage.Prefix([]byte("k"))))
		for i := range 10 {
			b.Ops = append(b.Ops, put(fmt.Sprintf("k%d:%d", (i+n)%10, n), fmt.Sprint(n)))
		}
		return b
	}
	t.commit(replace(0))
	t.whileWriting(func(n int) error {
		return t.store.Commit(t.Context(), replace(n))
	}, func(int) error {
		page, err := t.store.Scan(t.Context(), storage.Prefix([]byte("k")))
		if err != nil {
			return err
		}
		generations := map[string]bool{}
		for _, e := range page {
			generations[string(e.Value)] = true
		}
		if len(page) != 10 || len(generations) != 1 {
			return fmt.Errorf("Scan while ten entries are replaced: got %d entries of %d batches, want ten of one", len(page), len(generations))
		}
		return nil
	})
}

// interleavings are pairs of batches that a store may wrongly interleave: check one,
// then write the other. The result must be that of a serial order. The first is
// interleaving 17, whose other half is badBatchFailsAlone.
var interleavings = []struct {
	what   string
	before []string
	at     []storage.Batch
}{
	{"a range is emptied while a key of it is put", []string{"x=0"}, []storage.Batch{
		batch(storage.DeleteRange(storage.Prefix([]byte("r:"))), put("x", "1")),
		then(when(equal("x", "0")), put("r:2", "1")),
	}},
	{"two write what the other compares", []string{"a=0", "b=0"}, []storage.Batch{
		then(when(equal("a", "0")), put("b", "1")),
		then(when(equal("b", "0")), put("a", "1")),
	}},
	{"each deletes what the other needs", []string{"a=0", "b=0"}, []storage.Batch{
		then(when(present("a")), del("b")),
		then(when(present("b")), del("a")),
	}},
	{"what must be present is deleted", []string{"a=0"}, []storage.Batch{
		then(when(present("a")), put("b", "1")),
		batch(del("a"), del("b")),
	}},
	{"what must be absent is put", nil, []storage.Batch{
		then(when(absent("a")), put("a", "1"), put("b", "1")),
		batch(put("a", "2"), del("b")),
	}},
	{"what must stay absent is put", nil, []storage.Batch{
		then(when(absent("a")), del("a"), put("b", "1")),
		then(when(absent("b")), put("a", "2"), del("b")),
	}},
	{"what must be absent comes and goes", []string{"a=0"}, []storage.Batch{
		then(when(absent("a")), put("a", "1"), put("b", "1")),
		then(when(equal("a", "0")), del("a")),
		then(when(absent("c")), put("c", "1"), del("b")),
	}},
	{"what is compared is deleted with its range", []string{"a=0", "ab=0"}, []storage.Batch{
		then(when(equal("a", "0")), put("a", "1"), put("ac", "1")),
		batch(storage.DeleteRange(storage.Prefix([]byte("a")))),
	}},
	{"keys are locked in opposite order", []string{"a=0", "b=0"}, []storage.Batch{
		batch(put("a", "1"), put("b", "1")),
		batch(put("b", "2"), put("a", "2")),
		{Ops: []storage.Op{put("b", "3"), put("a", "3")}, Urgent: true},
	}},
}

func batchesInterleaveSerially(t *trial) {
	for _, c := range interleavings {
		before := model{}
		reset := batch(storage.DeleteRange(storage.Range{}))
		for _, e := range c.before {
			k, v, _ := strings.Cut(e, "=")
			before[k] = v
			reset.Ops = append(reset.Ops, put(k, v))
		}
		for range 20 {
			t.commit(reset)
			t.serial(c.what, maps.Clone(before), c.at)
		}
	}
}

func badBatchFailsAlone(t *trial) {
	t.put("there=1")
	gone, cancel := contextDone(t)
	defer cancel()
	for round := range 10 {
		t.together(24, func(i int) error {
			key := fmt.Sprint("key", i)
			ctx, b, want := t.Context(), batch(put(key, fmt.Sprint(round))), error(nil)
			switch {
			case i == 3:
				b, want = batch(put("bad", "1"), put("", "1")), storage.ErrInvalidBatch
			case i == 7:
				b, want = batch(put("bad", "1"), put("bad", "2")), storage.ErrInvalidBatch
			case i == 11:
				ctx, b, want = gone, batch(put("bad", "1")), gone.Err()
			case i == 15 && t.caps.ConditionalBatch:
				b, want = then(when(equal("there", "2")), put("bad", "1")), storage.ErrConflict
			case i == 19 && t.caps.ConditionalBatch:
				b, want = then(when(absent("there")), put("there", "2")), storage.ErrConflict
			case i == 20:
				b = batch(storage.DeleteRange(between("none", "nonf")), put(key, fmt.Sprint(round)))
			case i == 21:
				b.Urgent = true
			}
			if err := t.store.Commit(ctx, b); !errors.Is(err, want) {
				return fmt.Errorf("Commit(%s) among others: got %v, want %v", words(b), err, want)
			}
			if want != nil {
				return nil
			}
			if got, err := t.read(t.Context(), key); err != nil || got != fmt.Sprint(round) {
				return fmt.Errorf("Get(%s): got %q and error %v, want %d", key, got, err, round)
			}
			return nil
		})
		t.missing("bad")
		t.got("there", "1")
	}
}
