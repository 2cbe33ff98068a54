package control

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
)

// An artifactStore keeps the bytes of artifacts: see control.Artifacts.
type artifactStore interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
	Open(ctx context.Context, digest string) (io.ReadSeekCloser, error)
	Keep(ctx context.Context, digest string) error
	Sweep(ctx context.Context, before time.Time, used func(digest string) bool) error
}

// deployments has the operations on deployments.
type deployments struct {
	artifacts    artifactStore // nil: they are refused
	mostArtifact int64         // bytes
	required     bool          // a run that names no deployment needs an active one

	names       names
	lastPointer atomic.Pointer[[]byte] // the record of the active deployment as it was last read
}

// A deploymentCall is a call of one of them.
type deploymentCall struct {
	*call
	*deployments
}

// deploymentAct returns the action of a function.
func deploymentAct[P any](d *deployments, run func(ctx context.Context, c *deploymentCall, p *P) (answer, error)) action {
	return act(func(ctx context.Context, c *call, p *P) (answer, error) { return run(ctx, &deploymentCall{c, d}, p) })
}

// operations is the table of them.
func (d *deployments) operations() []*operation {
	return []*operation{
		{name: "deployments.create", method: "POST", path: "/v1/deployments", scopes: []string{scopeDeployWrite}, key: keyOptional, home: true, upload: true, do: deploymentAct(d, createDeployment)},
		{name: "deployments.list", method: "GET", path: "/v1/deployments", scopes: []string{scopeDeployRead}, home: true, do: deploymentAct(d, listDeployments)},
		{name: "deployments.active", method: "GET", path: "/v1/deployments/active", scopes: []string{scopeDeployRead}, do: deploymentAct(d, activeDeployment)},
		{name: "deployments.get", method: "GET", path: "/v1/deployments/{id}", scopes: []string{scopeDeployRead}, home: true, do: deploymentAct(d, getDeployment)},
		{name: "deployments.artifact", method: "GET", path: "/v1/deployments/{id}/artifact", scopes: []string{scopeDeployRead}, home: true, restOnly: true, do: deploymentAct(d, getArtifact)},
		{name: "deployments.activate", method: "POST", path: "/v1/deployments/{id}/activate", scopes: []string{scopeDeployWrite}, key: keyOptional, home: true, do: deploymentAct(d, activateDeployment)},
		{name: "world.deployment_id", method: "GET", path: "/v1/world/deployment-id", scopes: []string{scopeWorldProxy}, home: true, do: deploymentAct(d, activeDeployment)},
	}
}

// deploymentOf returns a deployment. Its status follows from which one is active (HTTP-36).
func deploymentOf(r *deployment.Record, active string) wire.Deployment {
	b := wire.Deployment{
		DeploymentID: r.ID, Manifest: r.Manifest, Digest: canon.Fingerprint(r.Manifest), Status: "created",
		CreatedAt: journal.Time(r.CreatedAt), CreatedBy: r.CreatedBy, ActivatedAt: journal.Time(r.ActivatedAt),
	}
	switch {
	case r.ID == active:
		b.Status = "active"
	case r.ActivatedAt != 0:
		b.Status = "inactive"
	}
	if a := r.Artifact; a != nil {
		b.Artifact = &wire.Artifact{Sha256: hex.EncodeToString(a.SHA256), Size: a.Size, Path: a.Path}
	}
	return b
}

// readPointer reads which deployment is active. Without one, Deployment is "". The record can be asked
// for the condition that this is so.
func readPointer(ctx context.Context, s storage.Storage) (*run.ActiveRecord, error) {
	raw, err := s.Get(ctx, run.ActiveKey)
	if errors.Is(err, storage.ErrNotFound) {
		return &run.ActiveRecord{}, nil
	}
	a := &run.ActiveRecord{Raw: raw}
	if err == nil {
		a.UnknownFields, err = record.Open(run.ActiveKey, raw, journal.Version, a)
	}
	return a, err
}

// pointed returns the batch that is committed only if the active deployment is still a. A batch must
// change what it wants absent. So the first of them stores a record that says that none is active:
// those that follow only compare it, and do not wait for each other.
func pointed(a *run.ActiveRecord) storage.Batch {
	b := storage.Batch{If: []storage.Condition{a.Unchanged()}}
	if a.Raw == nil {
		b.Ops = []storage.Op{storage.Put(run.ActiveKey, nothingActive)}
	}
	return b
}

// nothingActive is the stored record that says that no deployment is active.
var nothingActive = func() []byte {
	raw, err := record.Seal(run.ActiveKey, journal.Version, &run.ActiveRecord{}, nil)
	if err != nil {
		panic(err) // never: the record has nothing that could be refused
	}
	return raw
}()

// A target is where a run starts.
type target struct {
	deploymentID string // "": none
	queue        string // the default of its workflow; "": none
}

// target decides where a run of a workflow starts, and has the commit of tx depend on what that rests
// on: the record of the deployment and, if none was named, which one is active. It is an error if the
// deployment, or any engine, does not have the workflow.
func (d *deployments) target(ctx context.Context, c *call, tx storage.Tx, workflow string, named *string) (target, error) {
	var t target
	if named != nil {
		t.deploymentID = *named
	} else {
		last := d.lastPointer.Load()
		if !c.presumes {
			last = nil
		}
		if last != nil {
			tx.(*stage.Tx).Presume(run.ActiveKey, *last)
		}
		active, err := readPointer(ctx, tx)
		if err != nil {
			return t, err
		}
		if last == nil && active.Raw != nil {
			d.lastPointer.Store(&active.Raw)
		}
		if err := tx.Commit(ctx, pointed(active)); err != nil {
			return t, err
		}
		if t.deploymentID = active.Deployment; t.deploymentID == "" && d.required {
			return t, noActiveDeployment()
		}
	}
	m := &manifest{}
	if t.deploymentID != "" {
		r, err := deployment.Load(ctx, tx, t.deploymentID)
		switch {
		case errors.Is(err, storage.ErrNotFound) && named != nil:
			return t, notFound("Deployment")
		case errors.Is(err, storage.ErrNotFound): // activated by the host, without a record
		case err != nil:
			return t, err
		default:
			if err := tx.Commit(ctx, storage.Batch{If: []storage.Condition{r.Unchanged()}}); err != nil {
				return t, err
			}
			if m, err = readManifest(r.Manifest); err != nil {
				return t, fmt.Errorf("%w: manifest of deployment %q: %w", storage.ErrCorrupt, r.ID, err)
			}
		}
	}
	w, known := m.workflow(workflow)
	if m.workflows == nil {
		var err error
		if known, err = d.names.known(ctx, c.engine, workflow); err != nil {
			return t, err
		}
	}
	if !known {
		p := newProblem(http.StatusBadRequest, "unknown_workflow", fmt.Sprintf("No workflow is named %.100q.", workflow))
		p.Recovery = "Start an engine that has the workflow, or a deployment whose manifest lists it."
		return t, p
	}
	t.queue = w.Queue
	return t, nil
}

// deploymentParams are the parameters of deployments.create, which a multipart request has as parts.
type deploymentParams struct {
	Manifest json.RawMessage `json:"manifest,omitempty"`
	Artifact *artifactParams `json:"artifact,omitempty"`
}

type artifactParams struct {
	SHA256 string  `json:"sha256"`
	Size   int64   `json:"size"`
	Path   *string `json:"path,omitempty"`
}

// maxArtifactPath is the longest path of an artifact in bytes. It is never opened.
const maxArtifactPath = 1 << 10

// problems returns what is wrong with p once all of it has been read.
func (p *deploymentParams) problems() (issues []issue) {
	bad := func(path, problem string) { issues = append(issues, issue{Path: path, Problem: problem}) }
	if p.Manifest == nil {
		bad("/manifest", "is required")
	}
	if a := p.Artifact; a != nil {
		if !isDigest(a.SHA256) {
			bad("/artifact/sha256", "must be 64 lower-case hexadecimal digits")
		}
		if a.Size < 0 {
			bad("/artifact/size", "is negative")
		}
		if a.Path != nil && len(*a.Path) > maxArtifactPath {
			bad("/artifact/path", fmt.Sprintf("has more than %d bytes", maxArtifactPath))
		}
	}
	return issues
}

// manifest reads the manifest.
func (p *deploymentParams) manifest() (*manifest, error) {
	m, err := readManifest(p.Manifest)
	if bad, ok := errors.AsType[*manifestError](err); ok {
		return nil, newProblem(http.StatusBadRequest, bad.code, bad.problem)
	}
	return m, err
}

// createDeployment records a deployment. It does not activate it (HTTP-30).
func createDeployment(ctx context.Context, c *deploymentCall, p *deploymentParams) (answer, error) {
	if c.request != nil && isMultipart(c.request.Header) {
		if err := c.readUpload(ctx, p); err != nil {
			return answer{}, err
		}
	}
	if issues := p.problems(); len(issues) > 0 {
		return answer{}, invalid(issues...)
	}
	m, err := p.manifest()
	if err != nil {
		return answer{}, err
	}
	digest := sha256.Sum256(m.canonical)
	r := &deployment.Record{ID: m.deploymentID, Manifest: m.canonical, Digest: digest[:], CreatedBy: c.who.id}
	if a := p.Artifact; a != nil {
		sum, err := hex.DecodeString(a.SHA256)
		if err != nil {
			return answer{}, err
		}
		r.Artifact = &deployment.Artifact{SHA256: sum, Size: a.Size}
		if a.Path != nil {
			r.Artifact.Path = *a.Path
		}
		if c.artifacts != nil { // it may be old, and without a deployment so far
			if err := c.artifacts.Keep(ctx, a.SHA256); err != nil {
				return answer{}, internal(err)
			}
		}
	}
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		header := http.Header{"Location": {"/v1/deployments/" + r.ID}}
		there, err := deployment.Load(ctx, tx, r.ID)
		if err == nil {
			if !sameDeployment(there, r) {
				return answer{}, newProblem(http.StatusConflict, "deployment_exists", "Another deployment has this id.").
					with(map[string]any{"deploymentId": r.ID})
			}
			active, err := readPointer(ctx, tx)
			return answer{header: header, body: deploymentOf(there, active.Deployment)}, err
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return answer{}, err
		}
		r.CreatedAt = journal.Micro(time.Now())
		b, err := r.Create()
		if err != nil {
			return answer{}, err
		}
		if err := tx.Commit(ctx, b); err != nil {
			return answer{}, err
		}
		// The host may have activated it already, without a record.
		active, err := readPointer(ctx, tx)
		return answer{status: http.StatusCreated, header: header, body: deploymentOf(r, active.Deployment)}, err
	})
}

// sameDeployment reports whether two records are of the same content (OP-38).
func sameDeployment(a, b *deployment.Record) bool {
	if !bytes.Equal(a.Digest, b.Digest) || (a.Artifact == nil) != (b.Artifact == nil) {
		return false
	}
	return a.Artifact == nil || bytes.Equal(a.Artifact.SHA256, b.Artifact.SHA256) && a.Artifact.Size == b.Artifact.Size
}

type deploymentIDParams struct {
	ID string `json:"id" in:"path"`
}

// loadDeployment reads the record of a deployment.
func (c *deploymentCall) loadDeployment(ctx context.Context, s storage.Storage, id string) (*deployment.Record, error) {
	if !isDeploymentID(id) {
		return nil, notFound("Deployment")
	}
	r, err := deployment.Load(ctx, s, id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, notFound("Deployment")
	}
	return r, err
}

func getDeployment(ctx context.Context, c *deploymentCall, p *deploymentIDParams) (answer, error) {
	r, err := c.loadDeployment(ctx, c.store, p.ID)
	if err != nil {
		return answer{}, err
	}
	active, err := readPointer(ctx, c.store)
	if err != nil {
		return answer{}, err
	}
	return answer{body: deploymentOf(r, active.Deployment)}, nil
}

// activeDeployment answers which deployment is active (HTTP-12, HTTP-22, HTTP-39).
func activeDeployment(ctx context.Context, c *deploymentCall, _ *noParams) (answer, error) {
	a, err := readPointer(ctx, c.store)
	if err != nil {
		return answer{}, err
	}
	if a.Deployment == "" {
		return answer{}, noActiveDeployment()
	}
	return answer{body: wire.ActiveDeployment{DeploymentID: a.Deployment, Previous: a.Before, ActivatedAt: journal.Time(a.At)}}, nil
}

// activateParams are the parameters of deployments.activate. ExpectedActive is a string, or null for
// none; absent, it is not looked at.
type activateParams struct {
	ID             string          `json:"id" in:"path"`
	ExpectedActive json.RawMessage `json:"expectedActive,omitempty"`
	Reason         *string         `json:"reason,omitempty"`
}

func (p *activateParams) Check() []issue {
	issues := checkReason(nil, p.Reason)
	if _, ok := p.expected(); !ok {
		issues = append(issues, issue{Path: "/expectedActive", Problem: "must be a string or null"})
	}
	return issues
}

// expected returns the deployment that must be active: "" is none, and nil any.
func (p *activateParams) expected() (_ *string, ok bool) {
	if p.ExpectedActive == nil {
		return nil, true
	}
	var s *string
	if json.Unmarshal(p.ExpectedActive, &s) != nil {
		return nil, false
	}
	if s == nil {
		s = new(string)
	}
	return s, true
}

// activateDeployment has new runs begin on a deployment. Pointer, record, answer and audit row are one
// commit.
func activateDeployment(ctx context.Context, c *deploymentCall, p *activateParams) (answer, error) {
	if _, err := c.loadDeployment(ctx, c.store, p.ID); err != nil {
		return answer{}, err
	}
	live, err := c.liveEngines(ctx, p.ID)
	if err != nil {
		return answer{}, err
	}
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		if _, err := c.loadDeployment(ctx, tx, p.ID); err != nil {
			return answer{}, err
		}
		before, err := readPointer(ctx, tx)
		if err != nil && !record.Damaged(err) { // an activation also repairs a damaged pointer
			return answer{}, err
		}
		if expected, _ := p.expected(); before.Deployment != p.ID && expected != nil && *expected != before.Deployment {
			return answer{}, activeChanged(before.Deployment)
		}
		if err := c.engine.In(tx).Activate(ctx, p.ID, c.actor(p.Reason, "activate")); err != nil {
			return answer{}, err
		}
		after, err := readPointer(ctx, tx)
		if err != nil {
			return answer{}, err
		}
		return answer{body: wire.Activation{
			DeploymentID: p.ID, ActivatedAt: journal.Time(after.At), Changed: before.Deployment != p.ID, LiveEngines: live,
		}}, nil
	})
}

// activeChanged is the problem of an activation that expected another deployment to be active than this one; "": none is.
func activeChanged(now string) *problem {
	if now == "" {
		return newProblem(http.StatusConflict, "active_changed", "No deployment is active, and another state was expected.").with(map[string]any{"deploymentId": nil})
	}
	return newProblem(http.StatusConflict, "active_changed", "Deployment "+now+" is active, and another state was expected.").with(map[string]any{"deploymentId": now})
}

// liveEngines counts the engines of a deployment that are alive.
func (c *deploymentCall) liveEngines(ctx context.Context, id string) (n int, err error) {
	engines, err := c.engine.Engines(ctx)
	if err != nil && !record.Damaged(err) {
		return 0, err
	}
	for _, e := range engines {
		if e.Alive && e.Deployment == id {
			n++
		}
	}
	return n, nil
}

type deploymentListParams struct{ paging }

// A deploymentPlace is the place of a deployment in the list: by the time of its creation.
type deploymentPlace struct {
	CreatedAt int64  `cbor:"1,keyasint"`
	ID        string `cbor:"2,keyasint"`
}

func (p deploymentPlace) compare(q deploymentPlace) int {
	return cmp.Or(cmp.Compare(p.CreatedAt, q.CreatedAt), strings.Compare(p.ID, q.ID))
}

// listDeployments answers a page of deployments. Their records are in the order of their ids, so all
// of them are read. Which one is active is read once, so at most one is.
func listDeployments(ctx context.Context, c *deploymentCall, p *deploymentListParams) (answer, error) {
	list := fmt.Sprintf("deployments:%v", p.ascending())
	var from *deploymentPlace
	if cursor := p.Cursor; cursor != "" {
		if from = new(deploymentPlace); !openCursor(list, cursor, from) {
			return answer{}, badCursor()
		}
	}
	places, err := deploymentPlaces(ctx, c.store)
	if err != nil {
		return answer{}, err
	}
	if !p.ascending() {
		slices.Reverse(places)
	}
	if from != nil {
		places = slices.DeleteFunc(places, func(d deploymentPlace) bool {
			order := d.compare(*from)
			return order == 0 || (order > 0) != p.ascending()
		})
	}
	active, err := readPointer(ctx, c.store)
	if err != nil {
		return answer{}, err
	}
	page := weft.Page[wire.Deployment]{Next: p.Cursor}
	size := 0
	for _, at := range places {
		r, err := deployment.Load(ctx, c.store, at.ID)
		if err != nil {
			return answer{}, err
		}
		size += len(r.Manifest) + 400
		if len(page.Data) == p.limit() || size > maxPageBytes && len(page.Data) > 0 {
			page.HasMore = true
			break
		}
		page.Data = append(page.Data, deploymentOf(r, active.Deployment))
		if page.Next, err = sealCursor(list, &at); err != nil {
			return answer{}, err
		}
	}
	return answer{body: page}, nil
}

// deploymentPlaces returns the places of all deployments, the oldest first.
func deploymentPlaces(ctx context.Context, s storage.Storage) (places []deploymentPlace, _ error) {
	all := deployment.Range("")
	all.Limit = 32 // manifests may be large
	for e, err := range storage.All(ctx, s, all) {
		if err != nil {
			return nil, err
		}
		r, err := deployment.Open(e)
		if err != nil {
			return nil, err
		}
		places = append(places, deploymentPlace{r.CreatedAt, r.ID})
	}
	slices.SortFunc(places, deploymentPlace.compare)
	return places, nil
}

// getArtifact answers the bytes of a deployment's artifact.
func getArtifact(ctx context.Context, c *deploymentCall, p *deploymentIDParams) (answer, error) {
	r, err := c.loadDeployment(ctx, c.store, p.ID)
	if err != nil {
		return answer{}, err
	}
	if c.artifacts == nil {
		return answer{}, notConfigured("This service does not keep artifacts.")
	}
	if r.Artifact == nil {
		return answer{}, notFound("Artifact")
	}
	digest := hex.EncodeToString(r.Artifact.SHA256)
	file, err := c.artifacts.Open(ctx, digest)
	if errors.Is(err, fs.ErrNotExist) {
		return answer{}, notFound("Artifact")
	}
	if err != nil {
		return answer{}, err
	}
	return answer{
		header: http.Header{"Content-Type": {"application/octet-stream"}},
		end:    func() { file.Close() },
		stream: func(w http.ResponseWriter, r *http.Request) {
			ctx, release := c.hold(r.Context())
			defer release()
			sendArtifact(ctx, w, file)
		},
	}, nil
}
