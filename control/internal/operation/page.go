package operation

// Paging is embedded in the parameters of an operation that answers with a page.
type Paging struct {
	Limit     *int   `json:"limit,omitempty" in:"query"` // 1 to 1,000; nil: 100
	Cursor    string `json:"cursor,omitempty" in:"query"`
	SortOrder string `json:"sortOrder,omitempty" in:"query"` // desc, the default, or asc
}

// Limits of a page.
const (
	defaultPage  = 100
	maxPage      = 1000
	MaxPageBytes = 4 << 20
	maxCursor    = 2048
)

// Check returns what is wrong with p.
func (p *Paging) Check() (issues []Issue) {
	if p.Limit != nil && (*p.Limit < 1 || *p.Limit > maxPage) {
		issues = append(issues, Issue{Path: "/limit", Problem: "must be 1 to 1000"})
	}
	if len(p.Cursor) > maxCursor {
		issues = append(issues, Issue{Path: "/cursor", Problem: "is not a cursor"})
	}
	if p.SortOrder != "" && p.SortOrder != "asc" && p.SortOrder != "desc" {
		issues = append(issues, Issue{Path: "/sortOrder", Problem: "must be asc or desc"})
	}
	return issues
}

// Most is how many items a page has at most.
func (p *Paging) Most() int {
	if p.Limit == nil {
		return defaultPage
	}
	return *p.Limit
}

// Ascending reports whether the first item of the list comes first.
func (p *Paging) Ascending() bool { return p.SortOrder == "asc" }

// BadCursor is the problem of a cursor that no page had.
func BadCursor() *Problem {
	return Invalid(Issue{Path: "/cursor", Problem: "is not the cursor of a page of this list"})
}
