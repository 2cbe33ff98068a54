package main_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage"
)

// A planeShell runs verbs over a control plane that another process serves.
type planeShell struct {
	shell
	process *exec.Cmd
	url     string
	calls   string // the address that verbs call: the url, or of a proxy that keeps the answers
	keys    string // the file of keys
	unnamed bool   // the command line does not name it
	printed string // the first line
	log     *bytes.Buffer
	ended   chan struct{}
}

// serveWith starts "weft serve" and waits until it listens.
func (s shell) serveWith(env []string, args ...string) *planeShell {
	s.t.Helper()
	x := &planeShell{shell: s, keys: filepath.Join(s.t.TempDir(), "keys.json"), log: new(bytes.Buffer), ended: make(chan struct{})}
	x.begin(env, args...)
	return x
}

func (x *planeShell) begin(env []string, args ...string) {
	x.t.Helper()
	if !x.unnamed {
		args = append([]string{"--keys", x.keys}, args...)
	}
	cmd := x.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Dir = filepath.Dir(x.keys)
	cmd.Stderr = x.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		x.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	ended := make(chan struct{})
	x.process, x.ended = cmd, ended
	lines := make(chan string, 100)
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case lines <- s.Text():
			default:
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	x.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	select {
	case x.printed = <-lines:
	case <-ended:
		x.t.Fatalf("weft serve has ended: %s", x.log)
	case <-time.After(time.Minute):
		x.t.Fatal("weft serve prints nothing")
	}
	address := regexp.MustCompile(`^weft serves (https?://\S+) on `).FindStringSubmatch(x.printed)
	if address == nil {
		x.t.Fatalf("weft serve has printed %q", x.printed)
	}
	x.url = address[1]
	x.calls = answers.Proxy(x.t, x.url)
}

// command runs a verb with WEFT_URL set.
func (x *planeShell) command(args ...string) *exec.Cmd {
	cmd := x.shell.command(args...)
	cmd.Env = append(cmd.Env, "WEFT_URL="+x.calls)
	return cmd
}

func (x *planeShell) run(args ...string) (out, notes string, code int) {
	x.t.Helper()
	cmd := x.command(append(args, "--key-file", x.keys)...)
	var o, n bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &n
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		x.t.Fatal(err)
	}
	return o.String(), n.String(), cmd.ProcessState.ExitCode()
}

func (x *planeShell) done(args ...string) string {
	x.t.Helper()
	out, notes, code := x.run(args...)
	if code != 0 || notes != "" {
		x.t.Fatalf("weft %q: exit code %d: %s", args, code, notes)
	}
	return strings.TrimSuffix(out, "\n")
}

func (x *planeShell) fails(want int, words string, args ...string) {
	x.t.Helper()
	out, notes, code := x.run(args...)
	if code != want || out != "" || !strings.Contains(notes, words) || strings.Count(notes, "\n") != 1 {
		x.t.Errorf("weft %q: exit code %d, output %q, error %q; want %d, none, one line with %q", args, code, out, notes, want, words)
	}
}

// stop sends SIGTERM, and expects the process to end well.
func (x *planeShell) stop() {
	x.t.Helper()
	if err := x.process.Process.Signal(syscall.SIGTERM); err != nil {
		x.t.Fatal(err)
	}
	x.ends()
}

// ends waits until the process has ended, well.
func (x *planeShell) ends() {
	x.t.Helper()
	select {
	case <-x.ended:
	case <-time.After(time.Minute):
		x.t.Fatal("weft serve goes on after SIGTERM")
	}
	if code := x.process.ProcessState.ExitCode(); code != 0 {
		x.t.Errorf("after SIGTERM the exit code is %d: %s", code, x.log)
	}
}

// secret returns the secret of the first key of the file.
func (x *planeShell) secret() string {
	x.t.Helper()
	data, err := os.ReadFile(x.keys)
	var all []struct{ Secret string }
	if err != nil || json.Unmarshal(data, &all) != nil || len(all) == 0 {
		x.t.Fatal(string(data), err)
	}
	return all[0].Secret
}

// A demonstration of which nothing is said but that it is one has the same key after a restart, and warns of nothing.
func TestServeDemoIsStartedAgain(t *testing.T) {
	s := shell{t: t, program: program(t), store: newKind(t, "sqlite").store}
	x := &planeShell{shell: s, keys: filepath.Join(t.TempDir(), "weft-demo-keys.json"), unnamed: true, log: new(bytes.Buffer)}
	secret := ""
	for range 2 {
		x.begin(nil, "--demo")
		if info, err := os.Stat(x.keys); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file of keys is %v, %v", info, err)
		}
		if secret == "" {
			secret = x.secret()
		}
		if got := x.secret(); got != secret {
			t.Error("the key is another one after a restart")
		}
		if got := x.done("deployments", "active"); got != "demo-1" {
			t.Errorf("active is %s", got)
		}
		x.stop()
	}
	if x.log.Len() > 0 {
		t.Errorf("it warns: %s", x.log)
	}
}

// What a newcomer does: an order with an approval, over the verbs, on each store. HTTP-24: it goes on
// after a restart.
func TestServe(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		x := s.serveWith(nil, "--demo")
		if info, err := os.Stat(x.keys); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file of keys is %v, %v", info, err)
		}
		if got := x.done("runs", "start", "checkout", "order-1", "--input", `{"cents":4900}`, "--label", "region=north"); got != "order-1" {
			t.Errorf("start: %s", got)
		}
		if got := x.done("runs", "start", "checkout", "order-1", "--input", `{"cents":4900}`); got != "order-1" { // OP-22
			t.Errorf("start, again: %s", got)
		}
		x.fails(1, "run_exists", "runs", "start", "checkout", "order-1", "--input", `{"cents":1}`)
		first := x.done("runs", "start", "checkout", "--input", `{"cents":49000}`, "--idempotency-key", "k")
		if again := x.done("runs", "start", "checkout", "--input", `{"cents":49000}`, "--idempotency-key", "k"); again != first || !strings.HasPrefix(first, "wrun_") {
			t.Errorf("the same key again starts %s, and before %s", again, first)
		}
		if got := x.done("runs", "result", "order-1"); got != `{"receipt":"receipt of order-1","cents":4900}` {
			t.Errorf("result: %s", got)
		}
		x.fails(1, "run_terminal", "runs", "cancel", "order-1", "--reason", "late")
		x.stop()

		x.begin(nil, "--demo")
		if got := x.done("runs", "values", first); !strings.Contains(got, `"to be paid"`) {
			t.Errorf("values: %s", got)
		}
		for range 2 {
			if got := x.done("runs", "update", first, "amend", "--input", `{"cents":50000}`, "--id", "click-1"); got != `{"receipt":"","cents":50000}` {
				t.Errorf("update: %s", got)
			}
		}
		x.fails(1, "update_mismatch", "runs", "update", first, "amend", "--input", `{"cents":1}`, "--id", "click-1")
		x.fails(1, "nothing is free", "runs", "update", first, "amend")
		x.fails(1, "run_terminal", "runs", "update", "order-1", "amend", "--input", `{"cents":1}`)
		if out, notes, code := x.run("--timeout", "2s", "runs", "update", first, "ship"); code != 1 || out != "" || !strings.Contains(notes, "repeat this with --id upd_") {
			t.Errorf("an update that is not handled: exit code %d, output %q, error %q", code, out, notes)
		}
		if got := x.done("signals", "send", first, "approved", "--payload", `"ann"`, "--id", "evt"); got != "evt" {
			t.Errorf("send: %s", got)
		}
		if got := x.done("runs", "result", first); !strings.Contains(got, `"approvedBy":"ann"`) || !strings.Contains(got, `"cents":50000`) {
			t.Errorf("result: %s", got)
		}
		x.fails(1, "SignalPayloadConflict", "signals", "send", first, "approved", "--payload", `"bob"`, "--id", "evt")
		if got := x.done("runs", "list", "--label", "region=north"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "order-1") {
			t.Errorf("list: %s", got)
		}
		out, notes, _ := x.run("runs", "list", "--limit", "1", "--json")
		if strings.Count(out, "\n") != 1 || !strings.Contains(notes, "continue with --cursor ") {
			t.Errorf("list: %s, %s", out, notes)
		}
		cursor := strings.TrimSpace(notes[strings.LastIndex(notes, " "):])
		if got := x.done("runs", "list", "--json", "--cursor", cursor); !strings.Contains(got, "order-1") || strings.Contains(got, first) {
			t.Errorf("the next page: %s", got)
		}
		if got := x.done("runs", "get", "order-1"); !strings.Contains(got, "deployment  demo-1") || !strings.Contains(got, `input       {"cents":4900}`) {
			t.Errorf("get: %s", got)
		}
		if got := x.done("runs", "events", "order-1"); !strings.Contains(got, "step pay") {
			t.Errorf("events: %s", got)
		}
		if got := x.done("signals", "list", first); strings.Contains(got, "evt") {
			t.Errorf("a signal that was received is listed: %s", got)
		}
		if got := x.done("runs", "start", "checkout", "order-3", "--input", `{"cents":49000}`); got != "order-3" {
			t.Errorf("start: %s", got)
		}
		x.done("signals", "send", "order-3", "other", "--id", "o")
		if got := x.done("signals", "clear", "order-3", "other", "o", "--reason", "a mistake"); got != "order-3: the signal is removed" {
			t.Errorf("clear: %s", got)
		}
		if got := x.done("runs", "cancel", "order-3", "--reason", "the customer called"); got != "order-3: is asked to stop" {
			t.Errorf("cancel: %s", got)
		}
		x.fails(1, "cancelled", "runs", "result", "order-3")
		if got := x.done("runs", "reset", "order-3", "start", "--reason", "the customer wants it after all"); got != "order-3: is reset" {
			t.Errorf("reset: %s", got)
		}
		x.fails(1, "not_found", "runs", "reset", "order-3", "77", "--reason", "a test")
		events := x.done("runs", "events", "order-3")
		for _, want := range []string{`asked .* by demo: the customer called`, `acted .* by demo: the customer wants it after all`} {
			if !regexp.MustCompile(want).MatchString(events) {
				t.Errorf("the events do not say who and why: want %q in\n%s", want, events)
			}
		}
		x.done("signals", "send", "order-3", "approved", "--payload", `"ann"`)
		if got := x.done("runs", "result", "order-3"); !strings.Contains(got, `"approvedBy":"ann"`) {
			t.Errorf("the result after a reset: %s", got)
		}
		if got := x.done("bulks", "start", "back", "reset", "--before", "start", "--workflow", "checkout", "--status", "completed", "--rate", "100/1s", "--reason", "TICKET-7"); got != "back: is started" {
			t.Errorf("bulks start: %s", got)
		}
		for end := time.Now().Add(time.Minute); !strings.Contains(x.done("bulks", "get", "back"), ": ended, "); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it has not ended: %s", x.done("bulks", "get", "back"))
			}
		}
		if got := x.done("bulks", "get", "back", "--json"); !strings.Contains(got, `"verb":"reset"`) || !strings.Contains(got, `"rate":"100/1s"`) || !strings.Contains(got, "TICKET-7") {
			t.Errorf("bulks get: %s", got)
		}
		for _, id := range []string{"waits-1", "waits-2"} { // the bulk stops one of them within the hour
			x.done("runs", "start", "checkout", id, "--input", `{"cents":49000}`)
		}
		x.done("bulks", "start", "stop all", "cancel", "--until", "0s", "--rate", "1/1h", "--reason", "a test")
		if got := x.done("bulks", "stop", "stop all", "--reason", "it was not meant"); got != "'stop all': is stopped" {
			t.Errorf("bulks stop: %s", got)
		}
		if got := x.done("bulks", "list"); !strings.Contains(got, "back") || !strings.Contains(got, "'stop all'  cancel  stopped") {
			t.Errorf("bulks list: %s", got)
		}
		x.fails(1, "not_found", "bulks", "get", "none")
		x.fails(1, "bulk_exists", "bulks", "start", "back", "cancel", "--status", "failed", "--reason", "a test")
		x.fails(2, "selects everything", "bulks", "start", "all", "cancel", "--reason", "a test")
		x.fails(2, "reset needs --before", "bulks", "start", "all", "reset", "--status", "failed", "--reason", "a test")
		for _, id := range []string{"held-1", "held-2"} {
			x.done("runs", "start", "checkout", id, "--input", `"no order"`)
			for end := time.Now().Add(time.Minute); !strings.Contains(x.done("runs", "get", id), "undecodable"); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it is not held: %s", x.done("runs", "get", id))
				}
			}
		}
		x.fails(1, "the request is recorded, but the workflow is held (undecodable: ", "runs", "cancel", "held-1", "--reason", "wrong input")
		if got := x.done("runs", "get", "held-1"); !strings.Contains(got, "held-1 is running") || !strings.Contains(got, "by demo: wrong input") {
			t.Errorf("get of a run that is held and was asked to stop: %s", got)
		}
		x.fails(2, "--reason", "runs", "terminate", "held-1")
		if got := x.done("runs", "terminate", "held-1", "--reason", "wrong input"); got != "held-1: is terminated" {
			t.Errorf("terminate: %s", got)
		}
		x.fails(1, "run_terminal", "runs", "terminate", "held-1", "--reason", "again")
		x.fails(1, "not_found", "runs", "terminate", "none", "--reason", "a test")
		if got := x.done("runs", "get", "held-1"); !strings.Contains(got, "held-1 is cancelled") || !strings.Contains(got, "terminated ") {
			t.Errorf("get of a run that was terminated: %s", got)
		}
		x.done("bulks", "start", "end all", "terminate", "--attention", "--reason", "wrong input")
		x.fails(1, `was terminated, by "demo": wrong input`, "runs", "result", "held-2")
		x.done("runs", "start", "checkout", "order-4", "--input", `{"cents":49000}`)
		x.done("runs", "cancel", "order-4", "--reason", "the customer called")
		x.fails(1, "cancelled", "runs", "result", "order-4")
		if got := x.done("runs", "purge", "order-4", "--reason", "a test"); got != "order-4: is purged" {
			t.Errorf("purge: %s", got)
		}
		x.fails(1, "not_found", "runs", "get", "order-4")
		if got := x.done("audit", "--action", "runs.cancel", "--result", "success"); !strings.Contains(got, "demo ") || !strings.Contains(got, "/v1/runs/order-3/cancel") {
			t.Errorf("audit: %s", got)
		}
		if got := x.done("validate-ownership", "--strict"); !strings.HasPrefix(got, "ownership: pass") { // HTTP-104
			t.Errorf("validate-ownership: %s", got)
		}
		x.stop()
		k.with(t, func(storage.Storage) {}) // nobody has it open
	})
}

// A build is rolled out and back. HTTP-31, HTTP-34
func TestDeploymentVerbs(t *testing.T) {
	x := shell{t: t, program: program(t), store: newKind(t, "sqlite").store}.serveWith(nil, "--demo")
	if got := x.done("deployments", "active"); got != "demo-1" {
		t.Errorf("active: %s", got)
	}
	manifest := filepath.Join(t.TempDir(), "shop-2.json")
	if err := os.WriteFile(manifest, []byte(`{"deploymentId":"shop-2","workflows":[{"name":"checkout"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // OP-38
		if got := x.done("deployments", "create", "@"+manifest); got != "shop-2: is recorded" {
			t.Errorf("create: %s", got)
		}
	}
	x.fails(1, "deployment_exists", "deployments", "create", `{"deploymentId":"shop-2"}`)
	x.fails(1, "active_changed", "deployments", "activate", "shop-2", "--expect-none")
	out, notes, code := x.run("deployments", "activate", "shop-2", "--expect", "demo-1", "--reason", "a release")
	if code != 0 || out != "shop-2: is active\n" || !strings.Contains(notes, "no living engine is of deployment shop-2") {
		t.Errorf("activate: %d, %s, %s", code, out, notes)
	}
	if got := x.done("deployments", "activate", "demo-1"); got != "demo-1: is active" {
		t.Errorf("back: %s", got)
	}
	if got := x.done("deployments", "activate", "demo-1", "--expect", "shop-2"); got != "demo-1: was active already" {
		t.Errorf("again: %s", got)
	}
	if got := x.done("runs", "start", "checkout", "on-shop-2", "--deployment", "shop-2"); got != "on-shop-2" {
		t.Errorf("start: %s", got)
	}
	if got := x.done("runs", "get", "on-shop-2"); !strings.Contains(got, "deployment  shop-2") {
		t.Errorf("a start on a deployment that is not active: %s", got)
	}
	x.fails(1, "not_found", "runs", "start", "checkout", "--deployment", "shop-9")
	if got := x.done("deployments", "list"); !strings.Contains(got, "inactive") || !strings.Contains(got, "demo-1") {
		t.Errorf("list: %s", got)
	}
	if got := x.done("deployments", "get", "shop-2"); !strings.Contains(got, `"workflows":[{"name":"checkout"}]`) {
		t.Errorf("get: %s", got)
	}
	x.fails(1, "not_configured", "deployments", "create", `{"deploymentId":"shop-3"}`, "--artifact", manifest)
}

// Keys are made, rotated and revoked over the control plane, and in the store: the first one, and when
// all are lost. The secret alone is on the standard output.
func TestKeyVerbs(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		x := s.serveWith(nil, "--demo")
		made := x.done("keys", "create", "reader", "--scope", "runs:read", "--expires", "1h")
		if !strings.HasPrefix(made, "weft_sk_") || strings.Contains(made, "\n") {
			t.Fatalf("create: %q", made)
		}
		as := func(secret string, args ...string) (string, int) {
			cmd := x.command(args...)
			cmd.Env = append(cmd.Env, "WEFT_KEY="+secret)
			out, _ := cmd.CombinedOutput()
			return string(out), cmd.ProcessState.ExitCode()
		}
		if out, code := as(made, "runs", "list"); code != 0 {
			t.Errorf("with the new key: %s", out)
		}
		if out, code := as(made, "runs", "start", "checkout"); code != 1 || !strings.Contains(out, "missing_scope") || !strings.Contains(out, "use a key with the scope") {
			t.Errorf("without the scope: %d, %s", code, out)
		}
		out, notes, code := x.run("keys", "rotate", "reader", "--grace", "0s")
		if code != 0 || !strings.HasPrefix(out, "weft_sk_") || strings.TrimSpace(out) == made {
			t.Errorf("rotate: %d, %s, %s", code, out, notes)
		}
		if out, code := as(made, "runs", "list"); code != 1 || !strings.Contains(out, "unauthorized") {
			t.Errorf("with the former secret: %d, %s", code, out)
		}
		x.fails(1, "key_exists", "keys", "create", "reader", "--scope", "runs:read")
		if got := x.done("keys", "revoke", "reader"); got != "reader: is revoked" {
			t.Errorf("revoke: %s", got)
		}
		if got := x.done("keys", "list"); !strings.Contains(got, `["runs:read"]`) || strings.Contains(got, "weft_sk_") {
			t.Errorf("list: %s", got)
		}
		x.done("keys", "create", "second-admin", "--scope", "admin")
		x.done("keys", "revoke", "second-admin")
		x.done("keys", "create", "elsewhere", "--scope", "admin", "--project", "acme", "--environment", "prod")
		out, notes, code = x.run("keys", "revoke", "demo")
		if code != 0 || out != "demo: is revoked\n" || notes != "weft: demo was the last valid key of its namespace with the scope admin: weft keys create with --store and --write makes another one\n" {
			t.Errorf("revoke of the last admin: %d, %q, %q", code, out, notes)
		}
		x.fails(1, "unauthorized", "runs", "list")
		x.stop()

		// All keys are lost.
		s.fails(2, "add --write", "keys", "create", "admin", "--scope", "admin")
		for _, id := range []string{"admin", "second"} {
			// WEFT_URL is set, too: of a control plane that has ended.
			if made = x.done("keys", "create", id, "--scope", "admin", "--write"); !strings.HasPrefix(made, "weft_sk_") {
				t.Fatalf("create in the store: %q", made)
			}
		}
		if got := s.done("keys", "list", "--write", "--json"); strings.Count(got, `"keyId"`) < 4 {
			t.Errorf("list in the store: %s", got)
		}
		elsewhere := x.done("keys", "create", "shop", "--scope", "admin", "--home", "acme/prod", "--write")
		x.done("keys", "create", "tenant", "--scope", "admin", "--project", "acme", "--environment", "test", "--write")
		s.done("keys", "list", "--home", "acme/prod", "--write")
		s.fails(2, "PROJECT/ENVIRONMENT", "keys", "create", "odd", "--scope", "admin", "--home", "acme", "--write")
		s.fails(2, "--home is for a store", "keys", "revoke", "odd", "--home", "acme/prod", "--url", "http://localhost:1")
		x.begin(nil)
		if out, code := as(elsewhere, "audit", "--action", "keys.create"); code != 0 || strings.Count(out, "weft-command") != 1 {
			t.Errorf("with the key of another namespace: %d, %s", code, out)
		}
		if out, code := as(elsewhere, "audit", "--action", "keys.list"); code != 0 || strings.Count(out, "weft-command") != 1 {
			t.Errorf("lists, with the key of another namespace: %d, %s", code, out)
		}
		if out, code := as(made, "audit", "--action", "keys.create"); code != 0 || strings.Count(out, "weft-command") != 3 {
			t.Errorf("with the key of the store: %d, %s", code, out)
		}
		x.stop()
	})
}

// Without a key that is valid, weft serve says that it accepts no request, and which command makes a key. That command does.
func TestServeWithoutAKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders of tea.db")
	s := shell{t: t, program: program(t), store: "sqlite:" + path}
	note := regexp.MustCompile(`(?m)^weft: no request is accepted until there is a key: weft (keys create .*)$`)
	x := &planeShell{shell: s, keys: filepath.Join(t.TempDir(), "admin.key"), unnamed: true, log: new(bytes.Buffer)}
	said := func(deployment string) string {
		t.Helper()
		x.log.Reset()
		x.begin(nil, "--deployment", deployment) // which it activates the first time with a key of its own
		x.stop()
		if m := note.FindStringSubmatch(x.log.String()); m != nil {
			return m[1]
		}
		return ""
	}
	made := said("shop-1")
	if want := "keys create admin --scope admin --store 'sqlite:" + path + "' --write"; made != want {
		t.Fatalf("it says %q, want %q", made, want)
	}
	s.done("keys", "create", "mistake", "--scope", "admin", "--write")
	s.noted("mistake was the last valid key", "keys", "revoke", "mistake", "--write")
	if got := said("shop-1"); got != made {
		t.Errorf("with a key that is revoked it says %q", got)
	}
	s.store = ""
	if out, err := exec.Command("sh", "-c", s.program+" "+made).Output(); err != nil || !strings.HasPrefix(string(out), "weft_sk_") {
		t.Errorf("the command that it says: %q, %v", out, err)
	}
	if got := said("shop-1"); got != "" {
		t.Errorf("with a key it says %q", got)
	}
}

// Without the demonstration it executes nothing: it starts the workflows of workers that share the
// store, on their deployment.
func TestServeForWorkers(t *testing.T) {
	x := shell{t: t, program: program(t), store: newKind(t, "sqlite").store}
	first := x.serveWith(nil, "--demo")
	first.stop()
	x2 := x.serveWith(nil, "--demo", "--activate=false")
	x2.stop()

	k := newKind(t, "sqlite")
	s := shell{t: t, program: program(t), store: k.store}
	keys := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(keys, []byte(`[{"id":"shop","secret":"weft_sk_0123456789abcdef0123456789","scopes":["admin"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	y := &planeShell{shell: s, keys: keys, log: new(bytes.Buffer)}
	y.begin(nil)
	y.fails(1, "no_active_deployment", "runs", "start", "hello") // HTTP-28
	y.fails(1, "no_active_deployment", "deployments", "active")
	y.stop()
	y.begin(nil, "--deployment", "shop-1", "--activate=false")
	y.fails(1, "no_active_deployment", "deployments", "active")
	y.done("deployments", "create", `{"deploymentId":"shop-1","workflows":[{"name":"hello"}]}`) // it stays as it is
	y.stop()
	y.begin(nil, "--deployment", "shop-1")
	if got := y.done("deployments", "active"); got != "shop-1" {
		t.Errorf("active: %s", got)
	}
	if got := y.done("deployments", "get", "shop-1"); !strings.Contains(got, `"hello"`) {
		t.Errorf("get: %s", got)
	}
	if got := y.done("keys", "list"); strings.Count(got, "weft-command-") != 1 {
		t.Errorf("keys: %s", got)
	}
	y.stop()
	y.begin(nil, "--deployment", "shop-2") // one was active
	if got := y.done("deployments", "active"); got != "shop-1" {
		t.Errorf("active after another start: %s", got)
	}
}

// HTTP-104: the exit codes of validate-ownership --strict: 0 pass, 1 failure, 2 warnings.
func TestValidateOwnership(t *testing.T) {
	for _, c := range []struct {
		env          []string
		hit          bool
		word         string
		strict, lazy int
	}{
		{nil, false, "pass", 0, 0},
		{[]string{"WORKFLOW_EXECUTION_MODE=remote"}, false, "pass", 0, 0},
		{[]string{"WORKFLOW_EXECUTION_MODE=remote"}, true, "warn", 2, 0},
		{[]string{"WORKFLOW_EXECUTION_MODE=remote", "WORKFLOW_STRICT_REMOTE=1", "WORKFLOW_TARGET_WORLD=workflow-studio/world-remote"}, true, "fail", 1, 1},
	} {
		x := shell{t: t, program: program(t), store: newKind(t, "sqlite").store}.serveWith(c.env, "--demo")
		if c.hit {
			q, err := http.NewRequest("POST", x.url+"/.well-known/workflow/v1/step", strings.NewReader(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range []string{"x-vqs-signature", "x-vqs-delivery-id", "x-workflow-queue-provider"} {
				q.Header.Set(h, "x")
			}
			q.Header.Set("Content-Type", "application/json")
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			a.Body.Close()
			if a.StatusCode != http.StatusConflict {
				t.Errorf("an unexpected request is answered with %d", a.StatusCode)
			}
		}
		for end := time.Now().Add(time.Minute); c.hit; { // hits are written a little later
			if out, _, _ := x.run("validate-ownership"); !strings.Contains(out, "pass") {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the hit is not counted")
			}
		}
		for strict, want := range map[bool]int{true: c.strict, false: c.lazy} {
			out, notes, code := x.run("validate-ownership", fmt.Sprintf("--strict=%v", strict))
			if code != want || !strings.HasPrefix(out, "ownership: "+c.word+": ") || notes != "" {
				t.Errorf("%v, hit %v, strict %v: exit code %d, %s%s; want %d", c.env, c.hit, strict, code, out, notes, want)
			}
		}
		x.stop()
	}
}

// What is wrong with the command line is said before anything is opened, and no secret is shown.
func TestServeRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.db")
	s := shell{t: t, program: program(t), store: "sqlite:" + path}
	file := func(mode os.FileMode, text string) string {
		name := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const secret = "weft_sk_0123456789abcdef0123456789"
	good := fmt.Sprintf(`[{"id":"shop","secret":%q,"scopes":["admin"]}]`, secret)
	for _, c := range []struct {
		words string
		code  int
		args  []string
	}{
		{"is not HOST:PORT", 2, []string{"--listen", "8080"}},
		{"must come by https", 2, []string{"--listen", "0.0.0.0:0"}},
		{"must come by https", 2, []string{"--listen", ":0"}},
		{"go together", 2, []string{"--tls-cert", path}},
		{"neither an address nor a prefix", 2, []string{"--trusted-proxy", "shop"}},
		{"--hops 0", 2, []string{"--trusted-proxy", "10.0.0.0/8", "--hops", "0"}},
		{"--rate-limit 0", 2, []string{"--rate-limit", "0"}},
		{"there is no file of keys", 2, []string{"--keys", path + ".keys"}},
		{"chmod 600", 1, []string{"--keys", file(0o640, good)}},
		{"is not a JSON array of keys", 1, []string{"--keys", file(0o600, good[1:])}},
		{"is not a JSON array of keys", 1, []string{"--keys", file(0o600, strings.Replace(good, "scopes", "scope", 1))}},
		{"set WEFT_STORE instead", 2, []string{"--store", "postgres://ann@127.0.0.1:1/shop?password=" + secret}},
		{"set WEFT_STORE instead", 2, []string{"--store", "postgres://ann:" + secret + "%@127.0.0.1:1/shop"}},
		{"set WEFT_STORE instead", 2, []string{"--store", "postgres://ann:" + secret + "@127.0.0.1:1/shop"}},
		{"the store is not", 2, []string{"--store", "mysql:x"}},
	} {
		_, notes, code := s.run(append([]string{"serve", "--timeout", "10s"}, c.args...)...)
		if code != c.code || !strings.Contains(notes, c.words) || strings.Contains(notes, secret) {
			t.Errorf("weft serve %q: exit code %d: %s", c.args, code, notes)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a store was made")
	}
	for _, c := range []struct {
		words string
		env   string
		args  []string
	}{
		{"no control plane is named", "", []string{"runs", "list"}},
		{"no key is given", "WEFT_URL=http://127.0.0.1:1", []string{"runs", "list"}},
		{"would show the key", "WEFT_KEY=" + secret, []string{"runs", "list", "--url", "http://shop.internal"}},
		{"there is no key file", "WEFT_URL=http://127.0.0.1:1", []string{"runs", "list", "--key-file", path + ".key"}},
	} {
		cmd := s.command(c.args...)
		cmd.Env = append(cmd.Env, c.env)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), c.words) || strings.Contains(string(out), secret) {
			t.Errorf("weft %q: exit code %d: %s", c.args, code, out)
		}
	}
}

// The secrets of keys are in no log, not in the store, and on no command line: of the server, and of a verb that
// waits. HTTP-5
func TestSecretsStaySecret(t *testing.T) {
	k := newKind(t, "sqlite")
	x := shell{t: t, program: program(t), store: k.store}.serveWith(nil, "--demo")
	made := x.done("keys", "create", "reader", "--scope", "runs:read")
	rotated, _, _ := x.run("keys", "rotate", "reader")
	secrets := []string{x.secret(), made, strings.TrimSpace(rotated)}
	x.done("runs", "start", "checkout", "order-1", "--input", `{"cents":49000}`)
	x.fails(1, "not_found", "runs", "get", "gone")
	if status, text, _ := x.ask(secrets[1], "GET", "/v1/runs?token="+secrets[1], "", ""); status != http.StatusBadRequest || strings.Contains(text, secrets[1]) {
		t.Errorf("a token in the query: %d %s", status, text)
	}
	if status, _, _ := x.ask(secrets[1]+"x", "GET", "/v1/runs", "", ""); status != http.StatusUnauthorized {
		t.Errorf("an unknown token: %d", status)
	}
	waits := x.command("runs", "result", "order-1")
	waits.Env = append(waits.Env, "WEFT_KEY="+secrets[2])
	var said bytes.Buffer
	waits.Stdout, waits.Stderr = &said, &said
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		for _, pid := range []int{x.process.Process.Pid, waits.Process.Pid} {
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || !bytes.Contains(line, []byte("weft")) {
				t.Errorf("the command line of %d is %q, %v", pid, line, err)
			}
		}
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range lines {
			line, _ := os.ReadFile(f) // the process may have ended
			for i, secret := range secrets {
				if len(secret) < 40 || bytes.Contains(line, []byte(secret)) {
					t.Errorf("secret %d is on the command line %q", i, line)
				}
			}
		}
	}
	x.done("signals", "send", "order-1", "approved", "--payload", `"ann"`)
	if err := waits.Wait(); err != nil {
		t.Errorf("a verb that waits: %v: %s", err, &said)
	}
	x.stop()
	dir := filepath.Dir(strings.TrimPrefix(k.store, "sqlite:"))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	for i, secret := range secrets {
		if strings.Contains(x.log.String(), secret) || strings.Contains(x.printed, secret) || strings.Contains(said.String(), secret) {
			t.Errorf("secret %d was printed: %s%s%s", i, x.log, x.printed, &said)
		}
		for _, f := range entries {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil || bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s has secret %d, or cannot be read: %v", f.Name(), i, err)
			}
		}
	}
}

// The flags of serve may have one hyphen, as those of Go programs.
func TestOneHyphen(t *testing.T) {
	s := shell{t: t, program: program(t)}
	path := filepath.Join(t.TempDir(), "weft.db")
	_, notes, code := s.run("serve", "-store", "sqlite:"+path, "-demo", "-listen", "nowhere")
	if code != 2 || !strings.Contains(notes, "nowhere is not HOST:PORT") {
		t.Errorf("%d: %s", code, notes)
	}
}

// A request head has at most 32 KiB.
func TestLargeHeads(t *testing.T) {
	x := shell{t: t, program: program(t), store: newKind(t, "sqlite").store}.serveWith(nil, "--demo")
	q, err := http.NewRequest("GET", x.url+"/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("X-Large", strings.Repeat("x", 40<<10))
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head of 40 KiB is answered with %d", a.StatusCode)
	}
}

// HTTP-92: off loopback it serves https, and only that.
func TestServeByTLS(t *testing.T) {
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: certificate}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: der}} {
		data := pem.EncodeToMemory(block)
		roots.AppendCertsFromPEM(data)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x := shell{t: t, program: program(t), store: newKind(t, "sqlite").store}.serveWith(nil, "--demo",
		"--listen", "0.0.0.0:0", "--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	_, port, found := strings.Cut(strings.TrimPrefix(x.url, "https://"), "]:")
	if !found {
		_, port, _ = strings.Cut(strings.TrimPrefix(x.url, "https://"), ":")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	c, err := remote.New("https://127.0.0.1:"+port, x.secret(), &remote.Options{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ActiveDeployment(t.Context()); err != nil {
		t.Error(err)
	}
	// A server that is not trusted is not asked again.
	c, err = remote.New("https://127.0.0.1:"+port, x.secret(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ActiveDeployment(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without its certificate: %v", err)
	}
	x.stop()

	// A proxy that is trusted may add https; without it, requests are refused.
	x.begin(nil, "--demo", "--listen", "0.0.0.0:0", "--trusted-proxy", "127.0.0.1")
	_, port, _ = strings.Cut(strings.TrimPrefix(strings.Replace(x.url, "[::]", "", 1), "http://"), ":")
	for proto, want := range map[string]int{"": 400, "http": 400, "https": 200} {
		q, err := http.NewRequest("GET", "http://127.0.0.1:"+port+"/v1/deployments/active", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+x.secret())
		if proto != "" {
			q.Header.Set("X-Forwarded-Proto", proto)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("forwarded by %q: %d, want %d", proto, a.StatusCode, want)
		}
	}
	x.stop()
}
