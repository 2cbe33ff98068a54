package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// HTTP-74 to HTTP-83, HTTP-105: what the audit says of a call, on each store and after a restart.
func TestAuditRows(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		x := serve(t, s)
		x.do("POST", "/v1/keys", otherSecret, map[string]any{"keyId": "shop", "scopes": []string{"runs:read"}}, "X-Workflow-Correlation-Id", "c1", "User-Agent", "curl/8").is(201)
		x.do("POST", "/v1/keys", otherSecret, map[string]any{"keyId": "shop", "scopes": []string{"runs:read"}}).fails(409, "key_exists")
		x.do("GET", "/v1/runs/order-42", otherSecret, nil).fails(404, "not_found")
		x.do("GET", "/v1/keys?limit=7", otherSecret, nil, "X-Workflow-Run-Id", "order-43").is(200)
		x.audit(otherSecret, "action=keys.list", 1)
		if err := x.plane.Close(); err != nil {
			t.Fatal(err)
		}
		x = serve(t, s)
		row := x.audit(otherSecret, "action=keys.create&result=success", 1)[0]
		for name, want := range map[string]any{
			"keyId": "other", "project": "acme", "environment": "prod", "action": "keys.create", "resource": "/v1/keys",
			"result": "success", "ip": "127.0.0.1", "userAgent": "curl/8",
		} {
			if row[name] != want {
				t.Errorf("%s: got %v, want %v", name, row[name], want)
			}
		}
		at, err := time.Parse(time.RFC3339, row["createdAt"].(string))
		if err != nil || time.Since(at).Abs() > time.Minute || len(row["id"].(string)) != 26 {
			t.Errorf("got %v", row)
		}
		if m := row["metadata"].(map[string]any); m["lane"] != "public" || m["correlationId"] != "c1" || m["status"] != float64(201) || len(m) != 3 {
			t.Errorf("got the metadata %v", m)
		}
		if m := x.audit(otherSecret, "result=failure&action=keys.create", 1)[0]["metadata"].(map[string]any); m["code"] != "key_exists" {
			t.Errorf("a failure: got the metadata %v", m)
		}
		row = x.audit(otherSecret, "runId=order-42", 1)[0]
		if row["action"] != "runs.get" || row["resource"] != "/v1/runs/order-42" || row["metadata"].(map[string]any)["runId"] != "order-42" {
			t.Errorf("got %v", row)
		}
		row = x.audit(otherSecret, "runId=order-43", 1)[0]
		if row["action"] != "keys.list" || row["resource"] != "/v1/keys" {
			t.Errorf("got %v", row) // without the query
		}
		if rows := x.audit(adminSecret, "action=keys.create", 0); len(rows) > 0 {
			t.Errorf("home has rows of acme: %v", rows)
		}
	})
}

// HTTP-76, HTTP-77, HTTP-80: the lane, the key of a request, and that its answer was given before.
func TestAuditMetadata(t *testing.T) {
	x := serve(t, new(memory.Store))
	for range 2 {
		x.do("POST", "/v1/runs", adminSecret, `{"workflowName":"w","runId":"r"}`, "Idempotency-Key", "order-42").is(201)
	}
	x.do("POST", "/v1/runs", adminSecret, `{"workflowName":"w"}`, "Idempotency-Key", "order-42").fails(409, "idempotency_conflict")
	x.do("GET", "/v1/world/deployment-id", adminSecret, nil).is(409)
	var got []string
	for _, row := range x.audit(adminSecret, "action=runs.create", 3) {
		m := row["metadata"].(map[string]any)
		got = append(got, fmt.Sprint(m["lane"], m["runId"], m["idempotencyKey"], m["deduped"], m["code"]))
	}
	if want := "publicrorder-42<nil> <nil>"; got[2] != want {
		t.Errorf("the first: got %s, want %s", got[2], want)
	}
	if want := "publicrorder-42true <nil>"; got[1] != want {
		t.Errorf("the repetition: got %s, want %s", got[1], want)
	}
	if !strings.HasSuffix(got[0], "order-42<nil>idempotency_conflict") {
		t.Errorf("the other request: got %s", got[0])
	}
	row := x.audit(adminSecret, "action=world.deployment_id", 1)[0]
	if m := row["metadata"].(map[string]any); m["lane"] != "world_proxy" || row["result"] != "failure" {
		t.Errorf("got %v", row)
	}
}

// HTTP-75, HTTP-83: rows of nobody have no key, and are the home namespace's. Texts are cut, and have no line breaks.
func TestAuditOfNobody(t *testing.T) {
	x := serve(t, new(memory.Store))
	x.do("GET", "/v1/runs/"+url.PathEscape("a\r\nb"), "", nil, "User-Agent", strings.Repeat("é", 300)).is(401)
	row := x.audit(adminSecret, "action=runs.get&result=failure", 1)[0]
	if row["keyId"] != nil || row["project"] != nil || row["environment"] != nil {
		t.Errorf("got %v", row)
	}
	if agent := row["userAgent"].(string); len(agent) != 256 || !strings.HasPrefix(agent, "ééé") {
		t.Errorf("got the user agent %q", agent)
	}
	if strings.ContainsAny(fmt.Sprint(row["resource"], row["metadata"]), "\r\n\x00") {
		t.Errorf("got %q", row)
	}
	if rows := x.audit(otherSecret, "", 0); len(keysOf(rows, "keyId")) > 1 {
		t.Errorf("acme has rows of nobody: %v", rows)
	}
}

// What no rate bounds does not fill the store: of refusals of one kind, the first in 10 s is a row, and
// says how many there were.
func TestRefusalsAreCounted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		for range 5 {
			x.do("GET", "/v1/keys", "", nil).is(401)
			x.do("GET", "/v1/keys", readerSecret, nil).is(403)
		}
		time.Sleep(time.Second)
		if rows := x.do("GET", "/v1/audit?result=failure", adminSecret, nil).data(); len(rows) != 2 {
			t.Fatalf("after a second: got %d rows, want 2: %v", len(rows), rows)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		rows := x.do("GET", "/v1/audit?result=failure", adminSecret, nil).data()
		if len(rows) != 2 {
			t.Fatalf("after 11 s: got %d rows, want 2: %v", len(rows), rows)
		}
		for _, row := range rows {
			if m := row["metadata"].(map[string]any); m["count"] != float64(5) {
				t.Errorf("got the count %v, want 5: %v", m["count"], row)
			}
		}
		x.do("GET", "/v1/keys", "", nil).is(401)
		time.Sleep(time.Second)
		if rows := x.do("GET", "/v1/audit?result=failure", adminSecret, nil).data(); len(rows) != 3 {
			t.Errorf("the next one: got %d rows, want 3", len(rows))
		}
	})
}

// A refusal that comes between the end of a count and the flush that follows begins another count, and the first one is written
// nevertheless.
func TestRefusalsAfterACount(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		for range 5 {
			x.do("GET", "/v1/keys", "", nil).is(401)
		}
		time.Sleep(10*time.Second - 10*time.Millisecond)
		x.do("GET", "/v1/keys", adminSecret, nil).is(200) // its row has the next flush come after the end of the count
		time.Sleep(20 * time.Millisecond)
		x.do("GET", "/v1/keys", "", nil).is(401)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		var counts []any
		for _, row := range x.do("GET", "/v1/audit?result=failure", adminSecret, nil).data() {
			counts = append(counts, row["metadata"].(map[string]any)["count"])
		}
		if fmt.Sprint(counts) != "[<nil> 5]" {
			t.Errorf("got the counts %v, want none and 5", counts)
		}
	})
}

// A refusal whose repetitions are counted does not delay the rows that follow it.
func TestRowsDoNotWaitForRefusals(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		x.do("GET", "/v1/keys", "", nil).is(401)
		time.Sleep(time.Second)
		x.do("GET", "/v1/keys", adminSecret, nil).is(200)
		time.Sleep(100 * time.Millisecond)
		if rows := x.do("GET", "/v1/audit?action=keys.list&result=success", adminSecret, nil).data(); len(rows) != 1 {
			t.Errorf("after 100 ms: got %d rows, want 1", len(rows))
		}
	})
}

// Refusals of nobody are counted by network, as strangers are, and there are not more rows than some.
func TestRefusalsOfManyAddresses(t *testing.T) {
	for what, c := range map[string]struct {
		address func(i int) string
		most    int
	}{
		"a /64":         {func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1", i+1) }, 2},
		"many networks": {func(i int) string { return fmt.Sprintf("10.1.%d.%d:1", i/250, i%250) }, 1002},
	} {
		x := planeOn(t, new(memory.Store))
		for i := range 1500 {
			q := httptest.NewRequest("GET", "/v1/keys", nil)
			q.RemoteAddr = c.address(i)
			answers.Handler(x.plane).ServeHTTP(httptest.NewRecorder(), q)
		}
		x.plane.Close()
		n := 0
		for key := range dump(t, x.store) {
			if strings.HasPrefix(key, "ctl:audit:") {
				n++
			}
		}
		if n == 0 || n > c.most {
			t.Errorf("%s: got %d rows, want %d at most", what, n, c.most)
		}
	}
}

// Refusals whose row is not written yet when the plane closes are one row, with their number.
func TestRefusalsAtTheEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		for range 3 {
			x.do("GET", "/v1/keys", "", nil).is(401)
		}
		x.plane.Close()
		n := 0
		for key := range dump(t, x.store) {
			if strings.HasPrefix(key, "ctl:audit:") {
				n++
			}
		}
		if n != 1 || strings.Contains(x.log.String(), "audit rows are lost") {
			t.Errorf("got %d rows, want 1; the log is %s", n, x.log)
		}
	})
}

// Audit rows are forgotten after 90 days, of all namespaces.
func TestAuditIsForgotten(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		x := planeOn(t, s)
		odd := []storage.Op{storage.Put([]byte("ctl:audit:%zz"), nil)} // it keeps nothing behind it
		if err := s.Commit(t.Context(), storage.Batch{Ops: odd}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- x.plane.Run(ctx) }()
		count := func(key string) int { return len(x.do("GET", "/v1/audit?action=keys.create", key, nil).data()) }
		make := func(key string) {
			x.do("POST", "/v1/keys", key, map[string]any{"scopes": []string{"runs:read"}}).is(201)
		}
		make(adminSecret)
		make(otherSecret)
		time.Sleep(45 * 24 * time.Hour)
		make(adminSecret)
		make(otherSecret)
		time.Sleep(45*24*time.Hour - time.Hour)
		if a, b := count(adminSecret), count(otherSecret); a != 2 || b != 2 {
			t.Errorf("before 90 days: got %d and %d rows, want 2 and 2", a, b)
		}
		time.Sleep(2 * time.Hour)
		if a, b := count(adminSecret), count(otherSecret); a != 1 || b != 1 {
			t.Errorf("after 90 days: got %d and %d rows, want 1 and 1", a, b)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if log := x.log.String(); !strings.Contains(log, "what is old is not forgotten") || !strings.Contains(log, "old audit rows") || !strings.Contains(log, "%zz") {
			t.Errorf("the key that cannot be read is not named: %.2000s", log)
		}
	})
}

// F9: a row that cannot be read keeps nobody from those before and behind it. The log names it.
func TestAnAuditRowThatCannotBeRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		x := planeOn(t, s)
		for range 3 {
			x.do("POST", "/v1/keys", otherSecret, map[string]any{"scopes": []string{"runs:read"}}).is(201)
			time.Sleep(time.Minute)
		}
		rows := x.do("GET", "/v1/audit?action=keys.create", otherSecret, nil).data()
		if len(rows) != 3 {
			t.Fatalf("got %v", rows)
		}
		damaged := rows[1]["id"].(string)
		for e, err := range storage.All(t.Context(), s, storage.Prefix([]byte("ctl:audit:"))) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(string(e.Key), damaged) {
				if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(e.Key, []byte("no row"))}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, order := range []string{"asc", "desc"} {
			if rows := x.do("GET", "/v1/audit?action=keys.create&sortOrder="+order, otherSecret, nil).data(); len(rows) != 2 {
				t.Errorf("%s: got %v", order, rows)
			}
		}
		if log := x.log.String(); !strings.Contains(log, "an audit row cannot be read; it is passed over") || !strings.Contains(log, damaged) {
			t.Errorf("the row is not named: %.2000s", log)
		}
	})
}

// T-10: who reads the audit upwards stays 30 s behind, so that no row comes in behind its cursor.
func TestAuditUpwards(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		make := func() {
			x.do("POST", "/v1/keys", otherSecret, map[string]any{"scopes": []string{"runs:read"}}).is(201)
		}
		const up = "/v1/audit?action=keys.create&sortOrder=asc&limit=2&cursor="
		make()
		time.Sleep(29 * time.Second)
		if rows := x.do("GET", up, otherSecret, nil).data(); len(rows) != 0 {
			t.Errorf("after 29 s: got %v", rows)
		}
		if rows := x.do("GET", "/v1/audit?action=keys.create", otherSecret, nil).data(); len(rows) != 1 {
			t.Errorf("downwards: got %v", rows)
		}
		time.Sleep(2 * time.Second)
		page := x.do("GET", up, otherSecret, nil)
		if rows := page.data(); len(rows) != 1 {
			t.Fatalf("after 31 s: got %v", rows)
		}
		tail := page.object()["tail"].(string)
		make()
		make()
		make()
		time.Sleep(31 * time.Second)
		page = x.do("GET", up+tail, otherSecret, nil)
		if rows := page.data(); len(rows) != 2 || page.object()["hasMore"] != true {
			t.Errorf("the next page: got %s", page.body)
		}
		page = x.do("GET", up+page.object()["cursor"].(string), otherSecret, nil)
		if rows := page.data(); len(rows) != 1 || page.object()["hasMore"] != false {
			t.Errorf("the last page: got %s", page.body)
		}
		from := time.Now().Add(-32 * time.Second).UTC().Format(time.RFC3339Nano)
		if rows := x.do("GET", "/v1/audit?action=keys.create&from="+url.QueryEscape(from), otherSecret, nil).data(); len(rows) != 3 {
			t.Errorf("from: got %v", rows)
		}
		if rows := x.do("GET", "/v1/audit?action=keys.create&to="+url.QueryEscape(from), otherSecret, nil).data(); len(rows) != 1 {
			t.Errorf("to: got %v", rows)
		}
		if rows := x.do("GET", "/v1/audit?keyId=nobody", otherSecret, nil).data(); len(rows) != 0 {
			t.Errorf("of another key: got %v", rows)
		}
	})
}

// A row that stands for several refusals is stored again with their number after ten seconds, and the store may not take it for ten
// more. Who reads upwards gets the row once, with the number.
func TestAuditUpwardsHasTheCounts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &unavailable{Store: new(memory.Store)}
		x := planeOn(t, s)
		for range 3 {
			x.do("GET", "/v1/audit", readerSecret, nil).is(403)
			time.Sleep(2 * time.Second)
		}
		var counts []any
		cursor := ""
		for second := 6; second < 60; second++ {
			s.away.Store(second >= 9 && second < 19)
			time.Sleep(time.Second)
			page := x.do("GET", "/v1/audit?action=audit.list&result=failure&sortOrder=asc&cursor="+cursor, adminSecret, nil).is(200)
			for _, row := range page.data() {
				counts = append(counts, row["metadata"].(map[string]any)["count"])
			}
			cursor = page.object()["tail"].(string)
		}
		if len(counts) != 1 || counts[0] != 3.0 {
			t.Errorf("got rows with the counts %v, want one with 3", counts)
		}
	})
}

// An unavailable store takes nothing while it is away.
type unavailable struct {
	*memory.Store
	away atomic.Bool
}

func (s *unavailable) Commit(ctx context.Context, b storage.Batch) error {
	if s.away.Load() {
		return errors.New("the store is away")
	}
	return s.Store.Commit(ctx, b)
}

// A cursor that another process has given, whose clock is ahead, is good: nothing is behind it yet.
func TestAuditUpwardsFromAClockAhead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		make := func() {
			x.do("POST", "/v1/keys", otherSecret, map[string]any{"scopes": []string{"runs:read"}}).is(201)
		}
		ask := func(query string) (rows int, tail string) {
			a := x.do("GET", "/v1/audit?action=keys.create&"+query, otherSecret, nil).is(200)
			return len(a.data()), a.object()["tail"].(string)
		}
		make()
		_, ahead := ask("sortOrder=desc") // of the row that is newer than what is listed upwards
		for _, more := range []string{"", "&from=1999-01-01T00:00:00Z", "&to=2100-01-01T00:00:00Z"} {
			if rows, tail := ask("sortOrder=asc&cursor=" + ahead + more); rows != 0 || tail != ahead {
				t.Errorf("%d rows, then %q, want none and %q", rows, tail, ahead)
			}
		}
		time.Sleep(time.Second)
		make()
		time.Sleep(31 * time.Second)
		rows, last := ask("sortOrder=asc&cursor=" + ahead)
		if rows != 1 || last == ahead {
			t.Errorf("%d rows afterwards, want the one behind the cursor", rows)
		}
		from := url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		to := url.QueryEscape(time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
		for query, want := range map[string]int{
			"sortOrder=desc&cursor=" + last + "&to=" + to:     0, // all are newer
			"sortOrder=asc&cursor=" + last + "&from=" + from:  0,
			"sortOrder=desc&cursor=" + last + "&from=" + from: 1,
		} {
			if rows, _ := ask(query); rows != want {
				t.Errorf("%s: %d rows, want %d", query, rows, want)
			}
		}
	})
}

// A cursor of another namespace leads nowhere.
func TestAuditCursorOfAnother(t *testing.T) {
	x := serve(t, new(memory.Store))
	x.do("GET", "/v1/keys", adminSecret, nil)
	x.audit(adminSecret, "", 1)
	tail := x.do("GET", "/v1/audit", adminSecret, nil).object()["tail"].(string)
	x.do("GET", "/v1/audit?cursor="+tail, otherSecret, nil).fails(400, "invalid_request")
	x.do("GET", "/v1/audit?cursor="+tail, adminSecret, nil).is(200)
}
