package queue

import (
	"testing"
	"time"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// WLD-38: the bytes of the records of queues. A key is a row of its own, with its time.
func TestGoldenRecords(t *testing.T) {
	const at = 1767355200000000
	stored := func(m message) golden.Record {
		m.Name, m.Published, m.At = "__wkflow_flow_order", at, at+1000
		return golden.Record{Key: keys.QueueMessage("blue", "msg_1"), Version: version, Value: &m, Empty: func() any { return new(message) }}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"message":          stored(message{Body: []byte{0xa0}, Headers: map[string]string{"traceparent": "00-1"}}),
		"message-held":     stored(message{Receipt: "RECEIPT", Attempt: 1}),
		"message-returned": stored(message{Attempt: 1, Returned: "RECEIPT"}),
		"used":             {Key: keys.QueueKey("blue", "step_1"), Version: version, Value: &used{Message: "msg_1", At: at, Until: at + 5000000}, Empty: func() any { return new(used) }},
		"used-named":       {Key: keys.QueueKey("blue", "step_1"), Version: version, Value: &used{Message: "msg_1", At: at, Until: at + 60000000, Request: "req_1"}, Empty: func() any { return new(used) }},
		"mark":             {Key: keys.QueueDue("blue", time.UnixMicro(at), "msg_1"), Version: version, Value: &mark{}, Empty: func() any { return new(mark) }},
	})
}
