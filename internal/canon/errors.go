package canon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrInvalidJSON is wrapped by every *Error.
var ErrInvalidJSON = errors.New("invalid JSON")

// errNumber is the problem of a number that has no canonical form.
var errNumber = fmt.Errorf("number with an exponent above %d", maxExponent)

// maxPath is the maximum length of Error.Path.
const maxPath = 256

// An Error says why a document has no canonical form.
type Error struct {
	Offset  int64  // of the document; the problem is at this byte or behind it
	Path    string // JSON Pointer of the value, cut after 256 bytes
	Problem string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%v: %s at byte %d", ErrInvalidJSON, e.Problem, e.Offset)
	}
	return fmt.Sprintf("%v: %s at byte %d, in %q", ErrInvalidJSON, e.Problem, e.Offset, e.Path)
}

func (e *Error) Unwrap() error { return ErrInvalidJSON }

// problem reads a document that was refused once more, to find the place. If it finds none,
// which must not happen, the error is about the whole document.
func problem(data []byte, refused error) *Error {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	for {
		at, err := step(d)
		var syntax *jsontext.SyntacticError
		switch {
		case err == nil:
		case errors.Is(err, errNumber):
			return newError(at, d.StackPointer(), err)
		case errors.As(err, &syntax):
			return newError(syntax.ByteOffset, syntax.JSONPointer, syntax.Err)
		case errors.Is(err, io.EOF) && len(bytes.Trim(data, " \t\r\n")) == 0:
			return newError(int64(len(data)), "", io.ErrUnexpectedEOF)
		default:
			return newError(0, "", refused)
		}
		if d.StackDepth() == 0 {
			if rest := trailing(data, d.InputOffset()); rest >= 0 {
				return newError(rest, "", errors.New("data after the value"))
			}
		}
	}
}

// step reads the next token. at is where a number is that has no canonical form.
func step(d *jsontext.Decoder) (at int64, err error) {
	if d.PeekKind() != '0' {
		_, err := d.ReadToken()
		return 0, err
	}
	number, err := d.ReadValue()
	if err != nil {
		return 0, err
	}
	if _, ok := appendNumber(nil, number); !ok {
		return d.InputOffset() - int64(len(number)), errNumber
	}
	return 0, nil
}

// trailing returns where data continues after its value, or -1.
func trailing(data []byte, end int64) int64 {
	rest := bytes.TrimLeft(data[end:], " \t\r\n")
	if len(rest) == 0 {
		return -1
	}
	return int64(len(data) - len(rest))
}

func newError(offset int64, path jsontext.Pointer, err error) *Error {
	e := &Error{Offset: offset, Path: string(path), Problem: err.Error()}
	if len(e.Path) > maxPath {
		end := maxPath - len("…")
		for end > 0 && !utf8.RuneStart(e.Path[end]) {
			end--
		}
		e.Path = e.Path[:end] + "…"
	}
	return e
}
