package operation

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-go/weft/engine"
)

func TestRunIDs(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "a@b": true, "...": true, "a/b": true, "%2F": true, "ä": true, strings.Repeat("a", 128): true,
		"": false, "@": false, "@a/b/c": false, ".": false, "..": false, "\xff": false, "a\x00b": false, strings.Repeat("a", 129): false,
	} {
		if got := RunIDProblem(id) == ""; got != ok {
			t.Errorf("%q is a runId: %v, want %v", id, got, ok)
		}
	}
}

// A run has a runId in one namespace only.
func TestNamespacesAreApart(t *testing.T) {
	who := map[string]*Principal{
		"home":  {Namespace: Namespace{"default", "default"}, Home: true},
		"acme":  {Namespace: Namespace{"acme", "prod"}},
		"test":  {Namespace: Namespace{"acme", "test"}},
		"acme2": {Namespace: Namespace{"acme2", "prod"}},
		"short": {Namespace: Namespace{"acme", "pro"}},
	}
	for _, id := range []string{"order-1", "a/b", "acme/prod/x", "x@acme/prod/y"} {
		for name, k := range who {
			engine, ok := k.EngineID(id)
			if !ok {
				t.Fatalf("%s has no run %q", name, id)
			}
			for other, o := range who {
				got, ok := o.RunID(engine)
				if want := other == name; ok != want || ok && got != id {
					t.Errorf("%q of %s is %q, %v for %s", id, name, got, ok, other)
				}
			}
		}
	}
	for _, id := range []string{"@acme/prod/x", "..", ""} {
		for name, k := range who {
			if got, ok := k.EngineID(id); ok {
				t.Errorf("%s: %q is the run %q", name, id, got)
			}
		}
	}
	if got := who["acme"].Visible(`child "@acme/prod/a" of "@acme/prod/b"`); got != `child "a" of "b"` {
		t.Errorf("got %s", got)
	}
}

// What the engine says of a refusal is answered, with ids as the client knows them. A text that may have an id of another
// namespace is not.
func TestARefusalShowsNoOtherNamespace(t *testing.T) {
	home := &Principal{Namespace: Namespace{"default", "default"}, Home: true}
	acme := &Principal{Namespace: Namespace{"acme", "prod"}}
	const general = "This does not apply to the state that it is in."
	for _, c := range []struct {
		who        *Principal
		text, want string
	}{
		{home, `resolve "a": operation 1 needs no operator`, `resolve "a": operation 1 needs no operator`},
		{acme, `resume "@acme/prod/a": its parent "@acme/prod/b" has been told`, `resume "a": its parent "b" has been told`},
		{acme, `resume "@acme/prod/a": its parent "@other/prod/b" has been told`, general},
		{acme, `resume "@acme/prod/a": its parent "@acme/test/b" has been told`, general},
		{home, `resume "a": its parent "@acme/prod/b" has been told`, general},
		{nil, `resume "a": it is running`, general},
	} {
		p := (&Call{Who: c.who}).explain(fmt.Errorf("%w: %s", engine.ErrNotApplicable, c.text), true)
		if p.Code != "not_applicable" || p.Message != c.want || p.Detail != c.want {
			t.Errorf("%s: got %q, %q, want %q", c.text, p.Message, p.Detail, c.want)
		}
	}
	p := (&Call{Who: acme}).explain(fmt.Errorf(`%w: purge "@acme/prod/a": ann has protected it`, engine.ErrProtected), true)
	if want := `purge "a": ann has protected it`; p.Message != want {
		t.Errorf("got %q, want %q", p.Message, want)
	}
}

// An address of IPv6 is counted with its /64: a client has all of that.
func TestNetwork(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		if got := Network(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: got %v, want %s", in, got, want)
		}
	}
	if got := Network(netip.Addr{}); got.IsValid() {
		t.Errorf("no address: got %v", got)
	}
}
