package memory_test

import (
	"testing"

	"github.com/weft-go/weft/internal/linear"
	"github.com/weft-go/weft/storage/memory"
)

func TestLinearizable(t *testing.T) { linear.Check(t, new(memory.Store)) }
