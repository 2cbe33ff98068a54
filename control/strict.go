package control

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

// maxDepth is how many objects and arrays of a document may be within one another.
const maxDepth = 100

// decoders are reused, unless a large document made them large.
var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(bytes.NewBuffer(nil)) }}

// maxReused is the size of a document in bytes above which its decoder is not reused.
const maxReused = 64 << 10

// A jsonError says what is wrong with a document, and where.
type jsonError struct {
	path    string // a JSON pointer; "": the document as a whole
	problem string
}

func (e *jsonError) Error() string {
	if e.path == "" {
		return e.problem
	}
	return e.path + ": " + e.problem
}

// checkJSON returns an error unless data is exactly one JSON value (RFC 8259) of at most depth
// levels, without a doubled member, a lone surrogate, invalid UTF-8 or a byte order mark.
func checkJSON(data []byte, depth int) *jsonError {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return &jsonError{problem: "begins with a byte order mark"}
	}
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(data))
	if len(data) <= maxReused {
		defer func() { d.Reset(bytes.NewBuffer(nil)); decoders.Put(d) }() // it keeps no value of data
	}
	for first := true; first || d.StackDepth() > 0; first = false {
		if _, err := d.ReadToken(); err != nil {
			return syntaxProblem(err)
		}
		if d.StackDepth() > depth {
			return &jsonError{problem: fmt.Sprintf("has more than %d levels", depth)}
		}
	}
	switch _, err := d.ReadToken(); {
	case err == nil:
		return &jsonError{problem: "has something after its end"}
	case !errors.Is(err, io.EOF):
		return syntaxProblem(err)
	}
	return nil
}

func syntaxProblem(err error) *jsonError {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		what := s.Err.Error()
		if errors.Is(err, jsontext.ErrDuplicateName) {
			what = "occurs twice"
		}
		return &jsonError{path: string(s.JSONPointer), problem: what}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &jsonError{problem: "ends too early"}
	}
	return &jsonError{problem: "is not valid JSON"}
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
func decodeStrictly(raw []byte, v any) *jsonError {
	err := jsonv2.Unmarshal(raw, v, strictly)
	if err == nil {
		return nil
	}
	s, ok := errors.AsType[*jsonv2.SemanticError](err)
	if !ok {
		return syntaxProblem(err)
	}
	e := &jsonError{path: string(s.JSONPointer), problem: "has a wrong type"}
	switch {
	case errors.Is(err, jsonv2.ErrUnknownName):
		e.problem = "is unknown"
	case errors.Is(err, errNull):
		e.problem = errNull.Error()
	case errors.Is(err, strconv.ErrRange):
		e.problem = "is out of range"
	case s.GoType != nil:
		if want := jsonTypeOf(s.GoType); want != "" {
			e.problem = "must be " + want
		}
	}
	return e
}
