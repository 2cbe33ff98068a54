package control

import (
	"bytes"
	"testing"

	"github.com/weft-go/weft/storage/memory"
)

// A repetition is answered with the bytes of the first answer, whatever characters it has. HTTP-58
func TestARepetitionHasTheSameBytes(t *testing.T) {
	s := idle(t, new(memory.Store))
	body := `{"workflowName":"wait","runId":"a&b<c>\u2028"}`
	first := s.call(home, "POST", "/v1/runs", body, "Idempotency-Key", "k").is(t, 201, "")
	again := s.call(home, "POST", "/v1/runs", body, "Idempotency-Key", "k").is(t, 201, "")
	if !bytes.Equal(first.raw, again.raw) {
		t.Errorf("first %s, then %s", first.raw, again.raw)
	}
}
