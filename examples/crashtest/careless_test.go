//go:build careless

package crashtest

import (
	"testing"

	"github.com/weft-go/weft/enginetest"
)

// It fails: a card is charged twice.
func TestCareless(t *testing.T) { enginetest.CrashEverywhere(t, charging(Careless)) }
