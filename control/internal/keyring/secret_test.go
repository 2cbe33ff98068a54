package keyring

import "testing"

// The secret of a key is told once: a repetition would make another one.
func TestWhoeverMayHaveANewSecretLooksFirst(t *testing.T) {
	for _, p := range []interface{ InsteadOfAgain() string }{&createKeyParams{}, &rotateKeyParams{}} {
		if p.InsteadOfAgain() == "" {
			t.Errorf("%T: sent again", p)
		}
	}
}
