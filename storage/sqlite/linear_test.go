package sqlite_test

import (
	"testing"

	"github.com/weft-go/weft/internal/linear"
)

func TestLinearizable(t *testing.T) { linear.Check(t, open(t, newPath(t), nil)) }
