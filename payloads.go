package weft

import "time"

// Payloads are the input and the outcome of a workflow, as they are stored, with its state at that
// time. They are for transports: the codec of the caller decodes them.
type Payloads struct {
	Info  Info
	Input Encoded

	// Result is what the workflow returned; nil unless it has completed.
	Result *Encoded

	// Failure is the error that Result returns of a workflow that has failed; nil unless it has.
	// A client in another process makes it again from its texts: engine.Handle.Result finds the
	// Sentinel by SentinelText. Of a workflow that was cancelled, Info.Failure has the text of
	// the error, which wraps ErrCancelled.
	Failure *WorkflowError
}

// A ValueInfo is a value that a workflow has published. See engine.Value.
type ValueInfo struct {
	Name  string
	SetAt time.Time // what Run.Now returned when it was set
	Value Encoded
}

// An Encoded is an encoded value.
type Encoded struct {
	Codec string // the name of the Codec that encoded it; that of JSON is "json"
	Data  []byte
}
