package postgres

import (
	"fmt"
	"hash/fnv"
	"regexp"

	"github.com/jackc/pgx/v5"
)

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// withDefaults returns a copy of o with defaults for empty names.
func withDefaults(o *Options) Options {
	var full Options
	if o != nil {
		full = *o
	}
	if full.Schema == "" {
		full.Schema = "weft"
	}
	if full.Table == "" {
		full.Table = "store"
	}
	return full
}

func (o Options) check() error {
	for what, n := range map[string]string{"schema": o.Schema, "table": o.Table} {
		if !name.MatchString(n) {
			return fmt.Errorf("the name %q of the %s must consist of at most 63 letters, digits and underscores, and not begin with a digit", n, what)
		}
	}
	return nil
}

func (o Options) quoted() string { return pgx.Identifier{o.Schema, o.Table}.Sanitize() }

// lock returns the number of the advisory lock for a purpose.
func (o Options) lock(purpose string) uint64 {
	h := fnv.New64a()
	h.Write([]byte("weft " + purpose + o.quoted()))
	return h.Sum64()
}
