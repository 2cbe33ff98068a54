package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how many objects and arrays of a document may be within one another.
const MaxDepth = 100

// decoders are reused, unless a large document made them large.
var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(bytes.NewBuffer(nil)) }}

// maxReused is the size of a document in bytes above which its decoder is not reused.
const maxReused = 64 << 10

// A JSONError says what is wrong with a document, and where.
type JSONError struct {
	Path    string // a JSON pointer; "": the document as a whole
	Problem string
}

func (e *JSONError) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// CheckJSON returns an error unless data is exactly one JSON value (RFC 8259) of at most depth
// levels, without a doubled member, a lone surrogate, invalid UTF-8 or a byte order mark.
func CheckJSON(data []byte, depth int) *JSONError {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return &JSONError{Problem: "begins with a byte order mark"}
	}
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(data))
	if len(data) <= maxReused {
		defer func() { d.Reset(bytes.NewBuffer(nil)); decoders.Put(d) }() // it keeps no value of data
	}
	for first := true; first || d.StackDepth() > 0; first = false {
		if _, err := d.ReadToken(); err != nil {
			return SyntaxProblem(err)
		}
		if d.StackDepth() > depth {
			return &JSONError{Problem: fmt.Sprintf("has more than %d levels", depth)}
		}
	}
	switch _, err := d.ReadToken(); {
	case err == nil:
		return &JSONError{Problem: "has something after its end"}
	case !errors.Is(err, io.EOF):
		return SyntaxProblem(err)
	}
	return nil
}

// SyntaxProblem says what is wrong with a document that a decoder refuses.
func SyntaxProblem(err error) *JSONError {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		what := s.Err.Error()
		if errors.Is(err, jsontext.ErrDuplicateName) {
			what = "occurs twice"
		}
		return &JSONError{Path: string(s.JSONPointer), Problem: what}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &JSONError{Problem: "ends too early"}
	}
	return &JSONError{Problem: "is not valid JSON"}
}

var errNull = errors.New("must not be null")

// strictly are the options by which parameters are decoded: names are compared as they are,
// unknown and doubled ones are refused, and null is refused but where the type is a json.RawMessage.
var strictly = jsonv2.JoinOptions(
	jsonv2.RejectUnknownMembers(true),
	jsonv2.WithUnmarshalers(jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v any) error {
		if d.PeekKind() != jsontext.KindNull {
			return errors.ErrUnsupported
		}
		switch v.(type) {
		case *json.RawMessage, *jsontext.Value:
			return errors.ErrUnsupported // null is a value there
		}
		return errNull
	})),
)

// decodeStrictly decodes raw into v, a pointer to a struct.
func decodeStrictly(raw []byte, v any) *JSONError {
	err := jsonv2.Unmarshal(raw, v, strictly)
	if err == nil {
		return nil
	}
	s, ok := errors.AsType[*jsonv2.SemanticError](err)
	if !ok {
		return SyntaxProblem(err)
	}
	e := &JSONError{Path: string(s.JSONPointer), Problem: "has a wrong type"}
	switch {
	case errors.Is(err, jsonv2.ErrUnknownName):
		e.Problem = "is unknown"
	case errors.Is(err, errNull):
		e.Problem = errNull.Error()
	case errors.Is(err, strconv.ErrRange):
		e.Problem = "is out of range"
	case s.GoType != nil:
		if want := jsonTypeOf(s.GoType); want != "" {
			e.Problem = "must be " + want
		}
	}
	return e
}
