package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
)

// CreateKey makes a key and returns its secret, which nobody can ask for again. A call that is not
// answered is not repeated, because a repetition has no secret to return: if the Error is Unknown and the
// key exists, rotate it.
func (c *Client) CreateKey(ctx context.Context, k wire.CreateKey) (wire.KeySecret, error) {
	var made wire.KeySecret
	_, err := c.call(ctx, &request{what: "create a key", method: http.MethodPost, path: "/v1/keys", body: k, writes: true, unsafe: true}, &made)
	return made, err
}

// Keys returns a page of the keys that the caller's key may see, without secrets.
func (c *Client) Keys(ctx context.Context, r weft.PageRequest) (weft.Page[wire.Key], error) {
	return pageOf[wire.Key](ctx, c, "list keys", "/v1/keys", nil, r, subject{})
}

// RotateKey gives a key a new secret and returns it. The former one is valid for r.GraceSeconds. A
// call that is not answered is not repeated, because only its answer has the secret: if the Error is Unknown, rotate the
// key again. With a GraceSeconds of 0, no secret that anybody has may be valid then.
func (c *Client) RotateKey(ctx context.Context, id string, r wire.RotateKey) (wire.KeySecret, error) {
	var made wire.KeySecret
	_, err := c.call(ctx, &request{what: fmt.Sprintf("rotate key %q", id), method: http.MethodPost, path: path("keys", id, "rotate"), body: r, writes: true, unsafe: true}, &made)
	return made, err
}

// RevokeKey makes all secrets of a key invalid. project and environment are those of the key; empty:
// the caller's.
func (c *Client) RevokeKey(ctx context.Context, id, project, environment string) error {
	q := url.Values{}
	if project != "" {
		q.Set("project", project)
	}
	if environment != "" {
		q.Set("environment", environment)
	}
	_, err := c.call(ctx, &request{what: fmt.Sprintf("revoke key %q", id), method: http.MethodDelete, path: path("keys", id), query: q, writes: true}, nil)
	return err
}
