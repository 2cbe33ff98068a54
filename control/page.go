package control

// paging is embedded in the parameters of an operation that answers with a page.
type paging struct {
	Limit     *int   `json:"limit,omitempty" in:"query"` // 1 to 1,000; nil: 100
	Cursor    string `json:"cursor,omitempty" in:"query"`
	SortOrder string `json:"sortOrder,omitempty" in:"query"` // desc, the default, or asc
}

// Limits of a page.
const (
	defaultPage  = 100
	maxPage      = 1000
	maxPageBytes = 4 << 20
	maxCursor    = 2048
)

func (p *paging) Check() (issues []issue) {
	if p.Limit != nil && (*p.Limit < 1 || *p.Limit > maxPage) {
		issues = append(issues, issue{Path: "/limit", Problem: "must be 1 to 1000"})
	}
	if len(p.Cursor) > maxCursor {
		issues = append(issues, issue{Path: "/cursor", Problem: "is not a cursor"})
	}
	if p.SortOrder != "" && p.SortOrder != "asc" && p.SortOrder != "desc" {
		issues = append(issues, issue{Path: "/sortOrder", Problem: "must be asc or desc"})
	}
	return issues
}

func (p *paging) limit() int {
	if p.Limit == nil {
		return defaultPage
	}
	return *p.Limit
}

func (p *paging) ascending() bool { return p.SortOrder == "asc" }

// badCursor is the problem of a cursor that no page had.
func badCursor() *problem {
	return invalid(issue{Path: "/cursor", Problem: "is not the cursor of a page of this list"})
}
