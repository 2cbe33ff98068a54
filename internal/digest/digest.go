// Package digest says whether two inputs, or two payloads of signals, are the same.
package digest

import (
	"bytes"
	"crypto/sha256"

	"github.com/weft-go/weft/internal/canon"
)

// A Digest identifies a value by its plaintext, which is its JSON as encoding/json makes it,
// whatever codec encodes what is stored.
type Digest struct {
	// Plain is the SHA-256 of the plaintext. Earlier releases store and compare nothing else.
	Plain []byte

	// Canonical is the SHA-256 of the canonical form. It is nil if the plaintext is in that
	// form, if it has none, or if an earlier release stored the digest.
	Canonical []byte
}

// Of returns the digest of a plaintext.
func Of(plain []byte) Digest {
	d := Digest{Plain: sum(plain)}
	// JSON that has no canonical form, such as one with two members of the same name, is the
	// same only as itself.
	if form, err := canon.JSON(plain); err == nil && !bytes.Equal(form, plain) {
		d.Canonical = sum(form)
	}
	return d
}

// Same reports whether d and other are of the same JSON, in any order of members.
func (d Digest) Same(other Digest) bool {
	return bytes.Equal(d.Plain, other.Plain) || bytes.Equal(d.form(), other.form())
}

// form returns the digest of the canonical form, as far as it is known. If it is that of a
// plaintext in another form, no canonical form has it.
func (d Digest) form() []byte {
	if d.Canonical != nil {
		return d.Canonical
	}
	return d.Plain
}

func sum(data []byte) []byte {
	s := sha256.Sum256(data)
	return s[:]
}
