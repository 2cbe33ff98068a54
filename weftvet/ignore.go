package weftvet

import (
	"bytes"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const directive = "//weft:ignore"

type line struct {
	file string
	line int
}

// ignores returns which codes are suppressed on which lines, and reports directives that say
// nothing. A directive after code is for its line. One that is alone is for the line after its
// comment.
func ignores(pass *analysis.Pass) map[line][]code {
	found := map[line][]code{}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				rest, ok := strings.CutPrefix(comment.Text, directive)
				if !ok {
					continue
				}
				codes, ok := parseDirective(rest)
				if !ok {
					pass.Report(analysis.Diagnostic{
						Pos:     comment.Pos(),
						Message: "a weft:ignore needs a code and a reason, such as: " + directive + " W4 the order does not matter here",
					})
					continue
				}
				at := pass.Fset.Position(comment.Pos())
				if alone(pass, comment, at) {
					at.Line = pass.Fset.Position(group.End()).Line + 1
				}
				key := line{at.Filename, at.Line}
				found[key] = append(found[key], codes...)
			}
		}
	}
	return found
}

// parseDirective reads " W4,W6 reason". What follows another // is no part of the reason.
func parseDirective(s string) (found []code, ok bool) {
	s, _, _ = strings.Cut(s, "//")
	if s != "" && s[0] != ' ' && s[0] != '\t' {
		return nil, false
	}
	list, reason, _ := strings.Cut(strings.TrimSpace(s), " ")
	for name := range strings.SplitSeq(list, ",") {
		digits, isCode := strings.CutPrefix(name, "W")
		n, err := strconv.Atoi(digits)
		if !isCode || err != nil || n < 1 || n > codes {
			return nil, false
		}
		found = append(found, code(n))
	}
	return found, strings.TrimSpace(reason) != ""
}

// alone says that there is nothing before a comment on its line.
func alone(pass *analysis.Pass, c *ast.Comment, at token.Position) bool {
	text, err := pass.ReadFile(at.Filename)
	file := pass.Fset.File(c.Pos())
	if err != nil || file == nil {
		return at.Column == 1
	}
	end := file.Offset(c.Pos())
	if end > len(text) {
		return at.Column == 1
	}
	start := bytes.LastIndexByte(text[:end], '\n') + 1
	return len(bytes.TrimSpace(text[start:end])) == 0
}

// isIgnored says that a finding of a code at pos is suppressed.
func (c *checker) isIgnored(code code, pos token.Pos) bool {
	if len(c.ignored) == 0 {
		return false
	}
	at := c.pass.Fset.Position(pos)
	return slices.Contains(c.ignored[line{at.Filename, at.Line}], code)
}
