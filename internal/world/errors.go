package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/record"
)

// An Error is an answer that refuses a call. Its client makes of it the error of its runtime. Any other error
// is one of the store, or of the call's context.
type Error struct {
	Status     int    // as in HTTP
	Code       string // for programs
	Message    string // for people
	RetryAfter time.Duration
}

func (e *Error) Error() string { return "world: " + e.Message }

// The codes of errors.
const (
	CodeInvalid      = "invalid"
	CodeNotFound     = "not_found"
	CodeConflict     = "conflict"
	CodeRunTerminal  = "run_terminal"
	CodeTokenTaken   = "token_taken"
	CodeLimit        = "limit"
	CodeNotSupported = "run_not_supported"
	CodePrecondition = "precondition_failed"
	CodeTooEarly     = "too_early"
	CodeInternal     = "internal"
)

// What is answered to a call that failed for a reason of the server's.
const (
	internalErrorText  = "The world's store could not be read or written."
	damagedRecordsText = "A record of the world is damaged, or was written by a newer release."
)

func Invalid(format string, args ...any) *Error {
	return &Error{Status: 400, Code: CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

func NotFound(what, id string) *Error {
	return &Error{Status: 404, Code: CodeNotFound, Message: fmt.Sprintf("%s not found: %s", what, id)}
}

func conflict(code, format string, args ...any) *Error {
	return &Error{Status: 409, Code: code, Message: fmt.Sprintf(format, args...)}
}

func stale(format string, args ...any) *Error {
	return &Error{Status: 412, Code: CodePrecondition, Message: fmt.Sprintf(format, args...)}
}

// Answer returns the Error that answers a call that failed with err. Of an error that is not an Error it has no text,
// since that may name keys of the store.
func Answer(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Status: 500, Code: CodeInternal, Message: internalErrorText}
	if record.Damaged(err) {
		e.Message = damagedRecordsText
	}
	return e
}

// A StructuredError is how a run or a step of a runtime up to 4.x has failed.
type StructuredError struct {
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"`
	Code    string `json:"code,omitempty"`
}

// unknownError is the message of an error without one.
const unknownError = "Unknown error"

// encodeError returns e as it is stored: JSON.
func encodeError(e *StructuredError) string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return string(text)
}

// decodeError reads an error that is stored; nil if there is none. Text that is no JSON object is a message:
// older runtimes stored such.
func decodeError(text string) *StructuredError {
	if text == "" || text == "null" {
		return nil
	}
	var fields struct {
		Message *string `json:"message"`
		Stack   string  `json:"stack"`
		Code    string  `json:"code"`
	}
	if text[0] != '{' || json.Unmarshal([]byte(text), &fields) != nil {
		return &StructuredError{Message: text}
	}
	e := &StructuredError{Message: unknownError, Stack: fields.Stack, Code: fields.Code}
	if fields.Message != nil {
		e.Message = *fields.Message
	}
	return e
}
