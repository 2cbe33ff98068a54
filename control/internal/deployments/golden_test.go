package deployments

import (
	"testing"

	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/golden"
)

// Cursors are no records, but clients keep them.
func TestGoldenCursors(t *testing.T) {
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"cursor-deployments": {
			Key: []byte("deployments:false"), Version: records.Version, Value: &place{CreatedAt: 1767355200000000, ID: "shop-7"},
			Empty: func() any { return new(place) },
		},
	})
}
