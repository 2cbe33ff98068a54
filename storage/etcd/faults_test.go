package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/internal/inturn"
	"github.com/weft-go/weft/internal/linear"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

// rounds is how often a fault happens.
func rounds() int {
	if os.Getenv("WEFT_TORTURE") != "" {
		return 200
	}
	return 20
}

func put(key, value string) storage.Op { return storage.Put([]byte(key), []byte(value)) }

// workers is how many count.
const workers = 4

// during has two stores, as of two processes, work on a cluster while fault happens again and
// again. What is read and written in turn must be linearizable. Of what is counted by conditional
// batches, nothing may be lost or doubled, and nothing acknowledged may be gone.
//
// A fault begins when some steps were made since the last.
func during(t *testing.T, c *etcdtest.Cluster, fault func(round int) error) {
	t.Helper()
	o := empty()
	a, b := open(t, c, o), open(t, c, o)
	var over atomic.Bool
	var steps, unknown atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	defer over.Store(true)
	all.Go(func() {
		defer over.Store(true)
		for round := range rounds() {
			for most := steps.Load() + workers; steps.Load() < most; time.Sleep(time.Millisecond) {
				if over.Load() {
					return
				}
			}
			if err := fault(round); err != nil {
				t.Errorf("round %d: %v", round, err)
				return
			}
		}
	})
	totals := make([]int, workers)
	for i := range workers {
		all.Go(func() {
			s := []storage.Storage{a, b}[i%2]
			for n := 0; !over.Load() && !t.Failed(); n++ {
				count(t, s, i, n, &unknown)
				totals[i] = n + 1
				steps.Add(1)
			}
		})
	}
	linear.During(t, inturn.New("", a, b), func() bool { return !over.Load() })
	over.Store(true)
	all.Wait()
	counted(t, a, totals)
	t.Logf("%d rounds; counted %v, with %d unknown outcomes", rounds(), totals, unknown.Load())
}

// count increments a counter and logs that, in one batch, until it is known to be committed.
func count(t *testing.T, s storage.Storage, counter, n int, unknown *atomic.Int64) {
	key, log := fmt.Sprintf("count%d", counter), fmt.Sprintf("log%d:%06d", counter, n)
	b := storage.Batch{
		If:  []storage.Condition{storage.Absent([]byte(log))},
		Ops: []storage.Op{put(log, "1"), put(key, fmt.Sprint(n+1))},
	}
	if n == 0 {
		b.If = append(b.If, storage.Absent([]byte(key)))
	} else {
		b.If = append(b.If, storage.Equal([]byte(key), fmt.Append(nil, n)), storage.Present(fmt.Appendf(nil, "log%d:%06d", counter, n-1)))
	}
	doubt := false
	for end := time.Now().Add(2 * time.Minute); ; {
		err := s.Commit(context.Background(), b)
		switch {
		case err == nil:
			return
		case errors.Is(err, storage.ErrConflict):
			if _, err := get(s, log); !doubt || err != nil {
				t.Errorf("%s: a conflict with nobody: doubt %t, Get %v", log, doubt, err)
			}
			return
		case time.Now().After(end):
			t.Errorf("%s: %v", log, err)
			return
		}
		doubt = true
		unknown.Add(1)
		time.Sleep(time.Millisecond)
	}
}

// get retries for up to a minute until a read succeeds.
func get(s storage.Storage, key string) (string, error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		v, err := s.Get(context.Background(), []byte(key))
		if err == nil || errors.Is(err, storage.ErrNotFound) || time.Now().After(end) {
			return string(v), err
		}
	}
}

// counted compares the counters with the acknowledged steps.
func counted(t *testing.T, s storage.Storage, totals []int) {
	t.Helper()
	for i, want := range totals {
		got, err := get(s, fmt.Sprintf("count%d", i))
		if err != nil || got != fmt.Sprint(want) {
			t.Errorf("counter %d: got %q and error %v, want %d", i, got, err, want)
		}
		n := 0
		for _, err := range storage.All(t.Context(), s, storage.Prefix(fmt.Appendf(nil, "log%d:", i))) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want || want == 0 {
			t.Errorf("log of counter %d: got %d entries, want %d, and some", i, n, want)
		}
	}
}

// three starts three members, which elect another leader soon.
func three(t *testing.T, flags ...string) *etcdtest.Cluster {
	return etcdtest.Start(t, etcdtest.Options{Members: 3, Flags: flags, Election: etcdtest.Fast})
}

// upTo sleeps, so that a fault meets different moments.
func upTo(d time.Duration) { time.Sleep(rand.N(d)) }

// A member is killed with SIGKILL and started again.
func TestMemberKilled(t *testing.T) {
	t.Parallel()
	c := three(t)
	during(t, c, func(round int) error {
		m := c.Members[round%3]
		upTo(200 * time.Millisecond)
		m.Kill()
		upTo(200 * time.Millisecond)
		if err := m.Restart(); err != nil {
			return err
		}
		return m.Ready()
	})
}

// The leader is stopped until the others have another.
func TestLeaderStopped(t *testing.T) {
	t.Parallel()
	c := three(t)
	during(t, c, func(int) error {
		m, err := c.Leader()
		if err != nil {
			return err
		}
		upTo(200 * time.Millisecond)
		if err := m.Stop(); err != nil {
			return err
		}
		time.Sleep(time.Second)
		upTo(200 * time.Millisecond)
		if err := m.Continue(); err != nil {
			return err
		}
		return m.Ready()
	})
}

// A member, every other time the leader, is parted from the others. Clients still reach it.
func TestMemberParted(t *testing.T) {
	t.Parallel()
	c := three(t)
	during(t, c, func(round int) error {
		m, err := c.Leader()
		if err != nil {
			return err
		}
		if round%2 == 1 {
			m = c.Members[round%3]
		}
		c.Part(m)
		time.Sleep(700 * time.Millisecond)
		upTo(200 * time.Millisecond)
		c.Heal()
		return m.Ready()
	})
}

// The client's connection is cut at a transaction: before the member has received it, after
// that, and when it has answered.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	c := three(t)
	var cuts [4]atomic.Int64
	var commits atomic.Int64
	for _, m := range c.Members {
		m.Client.On(func(message []byte) etcdtest.Action {
			do := etcdtest.Pass
			if bytes.Contains(message, []byte("/changes")) { // which every transaction puts
				if n := commits.Add(1); n%20 == 0 {
					do = []etcdtest.Action{etcdtest.CutBefore, etcdtest.CutAfter, etcdtest.LoseReply}[n/20%3]
				}
			}
			cuts[do].Add(1)
			return do
		})
	}
	during(t, c, func(round int) error {
		for end := time.Now().Add(time.Minute); cuts[etcdtest.LoseReply].Load() <= int64(round) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	for _, m := range c.Members {
		m.Client.On(nil)
	}
	t.Logf("%d transactions; cut before %d, after %d, with the answer lost %d", commits.Load(),
		cuts[etcdtest.CutBefore].Load(), cuts[etcdtest.CutAfter].Load(), cuts[etcdtest.LoseReply].Load())
	if n := cuts[etcdtest.LoseReply].Load(); n < int64(rounds()) {
		t.Errorf("got %d lost answers, want at least %d", n, rounds())
	}
}

// A member is stopped until it has missed so much that it must be sent a snapshot. A store that
// uses only this member reads and judges nothing of the past when it goes on.
func TestMemberLags(t *testing.T) {
	t.Parallel()
	c := three(t, "--snapshot-count=100", "--snapshot-catchup-entries=20")
	o := empty()
	s := open(t, c, o)
	late := make([]*etcd.Store, 3)
	for i, m := range c.Members {
		var err error
		late[i], err = etcd.Open(t.Context(), clientv3.Config{Endpoints: []string{"http://" + m.Client.Addr()}}, o)
		must(t, err)
		defer late[i].Close()
	}
	n := 0
	write := func() { // on a condition: a try whose outcome is unknown may be applied when the stopped one goes on
		b := storage.Batch{If: []storage.Condition{storage.Equal([]byte("last"), fmt.Append(nil, n))}, Ops: []storage.Op{put("last", fmt.Sprint(n+1))}}
		if n == 0 {
			b.If[0] = storage.Absent([]byte("last"))
		}
		n++
		count := 0
		for end := time.Now().Add(time.Minute); ; { // the stopped one may have been the leader
			err := s.Commit(t.Context(), b)
			if err == nil || count > 0 && errors.Is(err, storage.ErrConflict) { // then an earlier try was applied
				return
			}
			if count++; time.Now().After(end) || errors.Is(err, storage.ErrConflict) {
				t.Fatalf("after %d tries: %v", count, err)
			}
		}
	}
	write()
	for round := range rounds() {
		m, lagging := c.Members[round%3], late[round%3]
		if leader, err := c.Leader(); err != nil || leader == m {
			must(t, err)
			m, lagging = c.Members[(round+1)%3], late[(round+1)%3]
		}
		must(t, m.Stop())
		for range 150 {
			write()
		}
		must(t, m.Continue())
		last := fmt.Appendf(nil, "%d", n)
		before := fmt.Appendf(nil, "%d", n-1)
		if v, err := lagging.Get(t.Context(), []byte("last")); string(v) != string(last) || err != nil {
			now, _ := get(s, "last")
			t.Errorf("round %d: got %q and error %v, want %q; another member answers %q", round, v, err, last, now)
		}
		for _, b := range []storage.Batch{
			{If: []storage.Condition{storage.Equal([]byte("last"), before)}},
			{If: []storage.Condition{storage.Equal([]byte("last"), before)}, Ops: []storage.Op{put("last", "wrong")}},
		} {
			if err := lagging.Commit(t.Context(), b); !errors.Is(err, storage.ErrConflict) {
				t.Errorf("round %d: got %v for what was so in the past, want ErrConflict", round, err)
			}
		}
	}
}

// Conditions that nothing is written with are judged by what is so now, and not by what a member
// without a leader knows.
func TestPartedMemberDoesNotJudge(t *testing.T) {
	t.Parallel()
	c := three(t)
	o := empty()
	s := open(t, c, o)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("k", "old")}}))
	for round := range rounds() / 10 {
		m := c.Members[round%3]
		if leader, err := c.Leader(); err != nil || leader == m {
			must(t, err)
			m = c.Members[(round+1)%3]
		}
		parted, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: []string{"http://" + m.Client.Addr()}}, o)
		must(t, err)
		old := fmt.Sprint("old", round)
		must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("k", old)}}))
		if v, err := parted.Get(t.Context(), []byte("k")); string(v) != old || err != nil {
			t.Fatalf("got %q and error %v, want %q", v, err, old)
		}
		c.Part(m)
		var unknown atomic.Int64
		for n := range 5 {
			count(t, s, round, n, &unknown)
		}
		for end := time.Now().Add(time.Minute); ; {
			err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("k", "new")}})
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for name, b := range readers(storage.Equal([]byte("k"), []byte(old))) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				if err := parted.Commit(ctx, b); err == nil {
					t.Errorf("round %d, %s: a parted member judged by what it knows", round, name)
				}
			})
		}
		all.Wait()
		c.Heal()
		must(t, m.Ready())
		parted.Close()
	}
}

// The cluster's history is compacted all the time while pages of several requests are read. Each
// page shows one moment.
func TestCompactionUnderReaders(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := open(t, c, empty())
	client := admin(t, c)
	const entries, at = 3000, 100
	write := func(value string) error {
		// The first and the last entry of the page are written together.
		return s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("k000000", value), put(fmt.Sprintf("k%06d", entries-1), value)}})
	}
	for i := 0; i < entries; i += at {
		var b storage.Batch
		for n := range at {
			b.Ops = append(b.Ops, put(fmt.Sprintf("k%06d", i+n), ""))
		}
		must(t, s.Commit(t.Context(), b))
	}
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; !over.Load(); n++ {
			if err := write(fmt.Sprint(n)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var compactions atomic.Int64
	all.Go(func() {
		for !over.Load() {
			answer, err := client.Get(t.Context(), "x")
			if err == nil {
				_, err = client.Compact(t.Context(), answer.Header.Revision)
			}
			if err != nil && !strings.Contains(err.Error(), "compacted") {
				t.Error(err)
				return
			}
			compactions.Add(1)
			time.Sleep(time.Millisecond)
		}
	})
	moments := map[string]bool{}
	enough := func() bool { return compactions.Load() >= int64(rounds()) && len(moments) >= rounds()/4 }
	round := 0
	for end := time.Now().Add(time.Minute); round < rounds() || !enough() && time.Now().Before(end); round++ {
		page, err := s.Scan(t.Context(), storage.Range{Limit: 2 * entries, Reverse: round%2 == 1})
		if err != nil || len(page) != entries {
			t.Errorf("got %d entries and error %v, want %d", len(page), err, entries)
			break
		}
		if first, last := string(page[0].Value), string(page[entries-1].Value); first != last {
			t.Errorf("got %q and %q of one page, want the same", first, last)
		}
		moments[string(page[0].Value)] = true
	}
	over.Store(true)
	all.Wait()
	t.Logf("%d pages of %d moments, %d compactions", round, len(moments), compactions.Load())
	if !enough() {
		t.Error("too little happened for this to mean something")
	}
}

// admin returns a client for what operators do.
func admin(t *testing.T, c *etcdtest.Cluster) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: time.Minute})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// The database is filled to its quota, and freed: what was acknowledged is there, and what was
// not has an unknown outcome, because the transaction that reaches the quota is applied.
func TestQuota(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Members: 3, Flags: []string{"--quota-backend-bytes=4194304"}})
	s := open(t, c, empty())
	client := admin(t, c)
	value := make([]byte, 256<<10)
	applied := 0
	for round := range rounds() {
		var acknowledged, doubtful [][]byte
		for n := 0; len(doubtful) < 3; n++ {
			key := fmt.Appendf(nil, "round%d:%d", round, n)
			err := s.Commit(t.Context(), storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, value)}})
			switch {
			case err == nil:
				acknowledged = append(acknowledged, key)
			case errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrInvalidBatch), errors.Is(err, errors.ErrUnsupported):
				t.Fatalf("round %d: got %v, want an unknown outcome", round, err)
			case strings.Contains(err.Error(), "outcome unknown") && strings.Contains(err.Error(), "space exceeded"):
				doubtful = append(doubtful, key)
			default:
				t.Fatalf("round %d: %v", round, err)
			}
		}
		for _, key := range acknowledged {
			if v, err := s.Get(t.Context(), key); len(v) != len(value) || err != nil {
				t.Errorf("round %d: %s was acknowledged: got %d bytes and error %v", round, key, len(v), err)
			}
		}
		for _, key := range doubtful {
			if _, err := s.Get(t.Context(), key); err == nil {
				applied++
			}
		}
		eventually(t, "the alarm", func() bool {
			space, err := s.Space(t.Context())
			return err == nil && space.Exhausted && space.Quota == 4<<20 && space.Size >= space.InUse
		})
		free(t, c, s, client)
	}
	t.Logf("%d rounds; %d transactions were applied and answered that the space is exceeded", rounds(), applied)
}

// free deletes everything, which a full cluster accepts, and does what an operator does.
func free(t *testing.T, c *etcdtest.Cluster, s *etcd.Store, client *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	for _, b := range []storage.Batch{
		{Ops: []storage.Op{storage.Delete([]byte("missing"))}},
		{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}},
	} {
		must(t, s.Commit(ctx, b))
	}
	answer, err := client.Get(ctx, "x")
	must(t, err)
	_, err = client.Compact(ctx, answer.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	for _, m := range c.Members {
		_, err = client.Defragment(ctx, "http://"+m.Client.Addr())
		must(t, err)
	}
	_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	must(t, err)
}
