package digest

import "testing"

// old returns the digest as an earlier release stored it.
func old(plain string) Digest { return Digest{Plain: sum([]byte(plain))} }

func TestSame(t *testing.T) {
	of := func(plain string) Digest { return Of([]byte(plain)) }
	const sorted, unsorted, other = `{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"a":2,"b":1}`
	const twice = `{"b":1,"a":1,"a":2}` // has no canonical form
	for _, c := range []struct {
		what string
		a, b Digest
		same bool
	}{
		{"itself", of(unsorted), of(unsorted), true},
		{"another order of members", of(unsorted), of(sorted), true},
		{"another spelling of a number", of(`{"b":2.0,"a":1e0}`), of(sorted), true},
		{"another value", of(unsorted), of(other), false},
		{"integers beyond 2^53", of(`9007199254740992`), of(`9007199254740993`), false},
		{"stored by an earlier release, itself", old(unsorted), of(unsorted), true},
		{"stored by an earlier release in canonical form, in another order", old(sorted), of(unsorted), true},
		{"stored by an earlier release, another value", old(unsorted), of(other), false},
		{"without a canonical form, itself", of(twice), of(twice), true},
		{"without a canonical form, another order", of(twice), of(`{"a":1,"a":2,"b":1}`), false},
	} {
		if got := c.a.Same(c.b); got != c.same {
			t.Errorf("%s: same is %v, want %v", c.what, got, c.same)
		}
		if got := c.b.Same(c.a); got != c.same {
			t.Errorf("%s, the other way round: same is %v, want %v", c.what, got, c.same)
		}
	}
}

// Most inputs take no more room in a record than before.
func TestCanonicalIsOmitted(t *testing.T) {
	if d := Of([]byte(`{"a":1,"b":2}`)); d.Canonical != nil {
		t.Errorf("of canonical JSON: %x, want none", d.Canonical)
	}
	if d := Of([]byte(`{"b":2,"a":1}`)); d.Canonical == nil {
		t.Error("of JSON in another order: none")
	}
}
