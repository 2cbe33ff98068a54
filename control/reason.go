package control

import "encoding/json"

// reason returns what the client gave as the reason, for the audit row. It is "" if there is none, or
// the parameters could not be read.
func (c *call) reason() string {
	if c.op.field("reason") == nil {
		return "" // so the parameters are not decoded once more
	}
	var given struct {
		Reason json.RawMessage `json:"reason"`
	}
	var text string
	if json.Unmarshal(c.raw, &given) != nil || json.Unmarshal(given.Reason, &text) != nil {
		return ""
	}
	return text
}
