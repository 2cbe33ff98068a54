package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
)

// CreateDeployment records a deployment. Its manifest is a JSON object with a member deploymentId and
// perhaps workflows, an array of {name, queue}. The same manifest again changes nothing. artifact
// says what is deployed elsewhere; nil: nothing.
func (c *Client) CreateDeployment(ctx context.Context, manifest json.RawMessage, artifact *wire.Artifact) (wire.Deployment, error) {
	var d wire.Deployment
	_, err := c.call(ctx, &request{
		what: "create a deployment", method: http.MethodPost, path: "/v1/deployments",
		body: wire.CreateDeployment{Manifest: manifest, Artifact: artifact}, keyed: true, writes: true,
	}, &d)
	return d, err
}

// UploadDeployment records a deployment with the bytes of its artifact, which the control plane
// keeps. They are sent again with each attempt.
func (c *Client) UploadDeployment(ctx context.Context, manifest json.RawMessage, artifact []byte) (wire.Deployment, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, part := range []struct {
		name, kind string
		data       []byte
	}{{"manifest", "application/json", manifest}, {"artifact", "application/octet-stream", artifact}} {
		h := textproto.MIMEHeader{"Content-Type": {part.kind}, "Content-Disposition": {fmt.Sprintf(`form-data; name="%s"`, part.name)}}
		if part.name == "artifact" {
			h.Set("Content-Disposition", `form-data; name="artifact"; filename="artifact"`)
		}
		w, err := form.CreatePart(h)
		if err == nil {
			_, err = w.Write(part.data)
		}
		if err != nil {
			return wire.Deployment{}, err
		}
	}
	if err := form.Close(); err != nil {
		return wire.Deployment{}, err
	}
	var d wire.Deployment
	_, err := c.call(ctx, &request{
		what: "upload a deployment", method: http.MethodPost, path: "/v1/deployments",
		raw: &raw{form.FormDataContentType(), body.Bytes()}, keyed: true, writes: true, wait: transferTime(body.Len()),
	}, &d)
	return d, err
}

// Deployments returns a page of the deployments, the newest first.
func (c *Client) Deployments(ctx context.Context, r weft.PageRequest) (weft.Page[wire.Deployment], error) {
	return pageOf[wire.Deployment](ctx, c, "list deployments", "/v1/deployments", nil, r, subject{})
}

// Deployment returns a deployment. Errors, beside those of every call: engine.ErrNotFound.
func (c *Client) Deployment(ctx context.Context, id string) (wire.Deployment, error) {
	if id == "active" { // the route of another operation
		return wire.Deployment{}, fmt.Errorf("%w: no deployment has the id %q", weft.ErrNotFound, id)
	}
	var d wire.Deployment
	_, err := c.call(ctx, &request{what: fmt.Sprintf("get deployment %q", id), method: http.MethodGet, path: path("deployments", id)}, &d)
	return d, err
}

// ActiveDeployment returns the deployment on which new runs start. Errors, beside those of every
// call: engine.ErrNoActiveDeployment.
func (c *Client) ActiveDeployment(ctx context.Context) (wire.ActiveDeployment, error) {
	var a wire.ActiveDeployment
	_, err := c.call(ctx, &request{what: "get the active deployment", method: http.MethodGet, path: "/v1/deployments/active"}, &a)
	return a, err
}

// An Expected is which deployment must be active for Activate to change it.
type Expected struct{ json json.RawMessage }

// IfActive expects a deployment.
func IfActive(id string) Expected {
	data, _ := json.Marshal(id) // a string has JSON
	return Expected{data}
}

// IfNoneActive expects that no deployment is active.
func IfNoneActive() Expected { return Expected{json.RawMessage("null")} }

// Activate makes a deployment the one on which new runs start, also to go back to an earlier one.
// Runs that are there already stay on theirs. The zero Expected expects nothing. Errors, beside those of every call:
// engine.ErrNotFound, and engine.ErrNotApplicable if another one is active than expected.
func (c *Client) Activate(ctx context.Context, id string, e Expected, by weft.Actor) (wire.Activation, error) {
	var a wire.Activation
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("activate deployment %q", id), method: http.MethodPost, path: path("deployments", id, "activate"),
		body: wire.ActivateDeployment{ExpectedActive: e.json, Reason: reason(by)}, keyed: true, writes: true,
	}, &a)
	return a, err
}
