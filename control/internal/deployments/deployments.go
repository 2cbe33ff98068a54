package deployments

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
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
)

// Artifacts keeps the bytes of artifacts: see control.Artifacts.
type Artifacts interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
	Open(ctx context.Context, digest string) (io.ReadSeekCloser, error)
	Keep(ctx context.Context, digest string) error
	Sweep(ctx context.Context, before time.Time, used func(digest string) bool) error
}

// Deployments has the operations on deployments.
type Deployments struct {
	Artifacts    Artifacts // nil: they are refused
	MostArtifact int64     // bytes
	Required     bool      // a run that names no deployment needs an active one

	names       names
	lastPointer atomic.Pointer[[]byte] // the record of the active deployment as it was last read
}

// A call is a call of one of them.
type call struct {
	*operation.Call
	*Deployments
}

// act returns the action of a function.
func act[P any](d *Deployments, run func(ctx context.Context, c *call, p *P) (operation.Answer, error)) operation.Action {
	return operation.Act(func(ctx context.Context, c *operation.Call, p *P) (operation.Answer, error) {
		return run(ctx, &call{c, d}, p)
	})
}

// Operations is the table of them.
func (d *Deployments) Operations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "deployments.create", Method: "POST", Path: "/v1/deployments", Scopes: []string{operation.ScopeDeployWrite}, Key: operation.KeyOptional, Home: true, Upload: true, Do: act(d, create)},
		{Name: "deployments.list", Method: "GET", Path: "/v1/deployments", Scopes: []string{operation.ScopeDeployRead}, Home: true, Do: act(d, list)},
		{Name: "deployments.active", Method: "GET", Path: "/v1/deployments/active", Scopes: []string{operation.ScopeDeployRead}, Do: act(d, active)},
		{Name: "deployments.get", Method: "GET", Path: "/v1/deployments/{id}", Scopes: []string{operation.ScopeDeployRead}, Home: true, Do: act(d, get)},
		{Name: "deployments.artifact", Method: "GET", Path: "/v1/deployments/{id}/artifact", Scopes: []string{operation.ScopeDeployRead}, Home: true, RestOnly: true, Do: act(d, getArtifact)},
		{Name: "deployments.activate", Method: "POST", Path: "/v1/deployments/{id}/activate", Scopes: []string{operation.ScopeDeployWrite}, Key: operation.KeyOptional, Home: true, Do: act(d, activate)},
		{Name: "world.deployment_id", Method: "GET", Path: "/v1/world/deployment-id", Scopes: []string{operation.ScopeWorldProxy}, Home: true, Do: act(d, active)},
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

// ReadActive reads which deployment is active. Without one, Deployment is "". The record can be asked
// for the condition that this is so.
func ReadActive(ctx context.Context, s storage.Storage) (*run.ActiveRecord, error) {
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

// Pointed returns the batch that is committed only if the active deployment is still a. A batch must
// change what it wants absent. So the first of them stores a record that says that none is active:
// those that follow only compare it, and do not wait for each other.
func Pointed(a *run.ActiveRecord) storage.Batch {
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
	DeploymentID string // "": none
	Queue        string // the default of its workflow; "": none
}

// Target decides where a run of a workflow starts, and has the commit of tx depend on what that rests
// on: the record of the deployment and, if none was named, which one is active. It is an error if the
// deployment, or any engine, does not have the workflow.
func (d *Deployments) Target(ctx context.Context, c *operation.Call, tx storage.Tx, workflow string, named *string) (target, error) {
	var t target
	if named != nil {
		t.DeploymentID = *named
	} else {
		last := d.lastPointer.Load()
		if !c.Presumes {
			last = nil
		}
		if last != nil {
			tx.(*stage.Tx).Presume(run.ActiveKey, *last)
		}
		active, err := ReadActive(ctx, tx)
		if err != nil {
			return t, err
		}
		if last == nil && active.Raw != nil {
			d.lastPointer.Store(&active.Raw)
		}
		if err := tx.Commit(ctx, Pointed(active)); err != nil {
			return t, err
		}
		if t.DeploymentID = active.Deployment; t.DeploymentID == "" && d.Required {
			return t, operation.NoActiveDeployment()
		}
	}
	m := &manifest{}
	if t.DeploymentID != "" {
		r, err := deployment.Load(ctx, tx, t.DeploymentID)
		switch {
		case errors.Is(err, storage.ErrNotFound) && named != nil:
			return t, operation.NotFound("Deployment")
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
		if known, err = d.names.known(ctx, c.Engine, workflow); err != nil {
			return t, err
		}
	}
	if !known {
		p := operation.NewProblem(http.StatusBadRequest, "unknown_workflow", fmt.Sprintf("No workflow is named %.100q.", workflow))
		p.Recovery = "Start an engine that has the workflow, or a deployment whose manifest lists it."
		return t, p
	}
	t.Queue = w.Queue
	return t, nil
}

// createParams are the parameters of deployments.create, which a multipart request has as parts.
type createParams struct {
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
func (p *createParams) problems() (issues []operation.Issue) {
	bad := func(path, problem string) { issues = append(issues, operation.Issue{Path: path, Problem: problem}) }
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
func (p *createParams) manifest() (*manifest, error) {
	m, err := readManifest(p.Manifest)
	if bad, ok := errors.AsType[*manifestError](err); ok {
		return nil, operation.NewProblem(http.StatusBadRequest, bad.code, bad.problem)
	}
	return m, err
}

// create records a deployment. It does not activate it (HTTP-30).
func create(ctx context.Context, c *call, p *createParams) (operation.Answer, error) {
	if c.Request != nil && IsMultipart(c.Request.Header) {
		if err := c.readUpload(ctx, p); err != nil {
			return operation.Answer{}, err
		}
	}
	if issues := p.problems(); len(issues) > 0 {
		return operation.Answer{}, operation.Invalid(issues...)
	}
	m, err := p.manifest()
	if err != nil {
		return operation.Answer{}, err
	}
	digest := sha256.Sum256(m.canonical)
	r := &deployment.Record{ID: m.deploymentID, Manifest: m.canonical, Digest: digest[:], CreatedBy: c.Who.ID}
	if a := p.Artifact; a != nil {
		sum, err := hex.DecodeString(a.SHA256)
		if err != nil {
			return operation.Answer{}, err
		}
		r.Artifact = &deployment.Artifact{SHA256: sum, Size: a.Size}
		if a.Path != nil {
			r.Artifact.Path = *a.Path
		}
		if c.Artifacts != nil { // it may be old, and without a deployment so far
			if err := c.Artifacts.Keep(ctx, a.SHA256); err != nil {
				return operation.Answer{}, operation.Internal(err)
			}
		}
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		header := http.Header{"Location": {"/v1/deployments/" + r.ID}}
		there, err := deployment.Load(ctx, tx, r.ID)
		if err == nil {
			if !sameDeployment(there, r) {
				return operation.Answer{}, operation.NewProblem(http.StatusConflict, "deployment_exists", "Another deployment has this id.").
					With(map[string]any{"deploymentId": r.ID})
			}
			active, err := ReadActive(ctx, tx)
			return operation.Answer{Header: header, Body: deploymentOf(there, active.Deployment)}, err
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return operation.Answer{}, err
		}
		r.CreatedAt = journal.Micro(time.Now())
		b, err := r.Create()
		if err != nil {
			return operation.Answer{}, err
		}
		if err := tx.Commit(ctx, b); err != nil {
			return operation.Answer{}, err
		}
		// The host may have activated it already, without a record.
		active, err := ReadActive(ctx, tx)
		return operation.Answer{Status: http.StatusCreated, Header: header, Body: deploymentOf(r, active.Deployment)}, err
	})
}

// sameDeployment reports whether two records are of the same content (OP-38).
func sameDeployment(a, b *deployment.Record) bool {
	if !bytes.Equal(a.Digest, b.Digest) || (a.Artifact == nil) != (b.Artifact == nil) {
		return false
	}
	return a.Artifact == nil || bytes.Equal(a.Artifact.SHA256, b.Artifact.SHA256) && a.Artifact.Size == b.Artifact.Size
}

type idParams struct {
	ID string `json:"id" in:"path"`
}

// loadDeployment reads the record of a deployment.
func (c *call) loadDeployment(ctx context.Context, s storage.Storage, id string) (*deployment.Record, error) {
	if !IsID(id) {
		return nil, operation.NotFound("Deployment")
	}
	r, err := deployment.Load(ctx, s, id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, operation.NotFound("Deployment")
	}
	return r, err
}

func get(ctx context.Context, c *call, p *idParams) (operation.Answer, error) {
	r, err := c.loadDeployment(ctx, c.Store, p.ID)
	if err != nil {
		return operation.Answer{}, err
	}
	active, err := ReadActive(ctx, c.Store)
	if err != nil {
		return operation.Answer{}, err
	}
	return operation.Answer{Body: deploymentOf(r, active.Deployment)}, nil
}

// active answers which deployment is active (HTTP-12, HTTP-22, HTTP-39).
func active(ctx context.Context, c *call, _ *operation.NoParams) (operation.Answer, error) {
	a, err := ReadActive(ctx, c.Store)
	if err != nil {
		return operation.Answer{}, err
	}
	if a.Deployment == "" {
		return operation.Answer{}, operation.NoActiveDeployment()
	}
	return operation.Answer{Body: wire.ActiveDeployment{DeploymentID: a.Deployment, Previous: a.Before, ActivatedAt: journal.Time(a.At)}}, nil
}

// activateParams are the parameters of deployments.activate. ExpectedActive is a string, or null for
// none; absent, it is not looked at.
type activateParams struct {
	ID             string          `json:"id" in:"path"`
	ExpectedActive json.RawMessage `json:"expectedActive,omitempty"`
	Reason         *string         `json:"reason,omitempty"`
}

var _ operation.Checker = (*activateParams)(nil)

func (p *activateParams) Check() []operation.Issue {
	issues := operation.CheckReason(nil, p.Reason)
	if _, ok := p.expected(); !ok {
		issues = append(issues, operation.Issue{Path: "/expectedActive", Problem: "must be a string or null"})
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

// activate has new runs begin on a deployment. Pointer, record, answer and audit row are one
// commit.
func activate(ctx context.Context, c *call, p *activateParams) (operation.Answer, error) {
	if _, err := c.loadDeployment(ctx, c.Store, p.ID); err != nil {
		return operation.Answer{}, err
	}
	live, err := c.liveEngines(ctx, p.ID)
	if err != nil {
		return operation.Answer{}, err
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		if _, err := c.loadDeployment(ctx, tx, p.ID); err != nil {
			return operation.Answer{}, err
		}
		before, err := ReadActive(ctx, tx)
		if err != nil && !record.Damaged(err) { // an activation also repairs a damaged pointer
			return operation.Answer{}, err
		}
		if expected, _ := p.expected(); before.Deployment != p.ID && expected != nil && *expected != before.Deployment {
			return operation.Answer{}, activeChanged(before.Deployment)
		}
		if err := c.Engine.In(tx).Activate(ctx, p.ID, c.Actor(p.Reason, "activate")); err != nil {
			return operation.Answer{}, err
		}
		after, err := ReadActive(ctx, tx)
		if err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Body: wire.Activation{
			DeploymentID: p.ID, ActivatedAt: journal.Time(after.At), Changed: before.Deployment != p.ID, LiveEngines: live,
		}}, nil
	})
}

// activeChanged is the problem of an activation that expected another deployment to be active than this one; "": none is.
func activeChanged(now string) *operation.Problem {
	if now == "" {
		return operation.NewProblem(http.StatusConflict, "active_changed", "No deployment is active, and another state was expected.").With(map[string]any{"deploymentId": nil})
	}
	return operation.NewProblem(http.StatusConflict, "active_changed", "Deployment "+now+" is active, and another state was expected.").With(map[string]any{"deploymentId": now})
}

// liveEngines counts the engines of a deployment that are alive.
func (c *call) liveEngines(ctx context.Context, id string) (n int, err error) {
	engines, err := c.Engine.Engines(ctx)
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

type listParams struct{ operation.Paging }

// A place is the place of a deployment in the list: by the time of its creation.
type place struct {
	CreatedAt int64  `cbor:"1,keyasint"`
	ID        string `cbor:"2,keyasint"`
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.CreatedAt, q.CreatedAt), strings.Compare(p.ID, q.ID))
}

// list answers a page of deployments. Their records are in the order of their ids, so all
// of them are read. Which one is active is read once, so at most one is.
func list(ctx context.Context, c *call, p *listParams) (operation.Answer, error) {
	list := fmt.Sprintf("deployments:%v", p.Ascending())
	var from *place
	if cursor := p.Cursor; cursor != "" {
		if from = new(place); !operation.OpenCursor(list, cursor, from) {
			return operation.Answer{}, operation.BadCursor()
		}
	}
	places, err := placesOf(ctx, c.Store)
	if err != nil {
		return operation.Answer{}, err
	}
	if !p.Ascending() {
		slices.Reverse(places)
	}
	if from != nil {
		places = slices.DeleteFunc(places, func(d place) bool {
			order := d.compare(*from)
			return order == 0 || (order > 0) != p.Ascending()
		})
	}
	active, err := ReadActive(ctx, c.Store)
	if err != nil {
		return operation.Answer{}, err
	}
	page := weft.Page[wire.Deployment]{Next: p.Cursor}
	size := 0
	for _, at := range places {
		r, err := deployment.Load(ctx, c.Store, at.ID)
		if err != nil {
			return operation.Answer{}, err
		}
		size += len(r.Manifest) + 400
		if len(page.Data) == p.Most() || size > operation.MaxPageBytes && len(page.Data) > 0 {
			page.HasMore = true
			break
		}
		page.Data = append(page.Data, deploymentOf(r, active.Deployment))
		if page.Next, err = operation.SealCursor(list, &at); err != nil {
			return operation.Answer{}, err
		}
	}
	return operation.Answer{Body: page}, nil
}

// placesOf returns the places of all deployments, the oldest first.
func placesOf(ctx context.Context, s storage.Storage) (places []place, _ error) {
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
		places = append(places, place{r.CreatedAt, r.ID})
	}
	slices.SortFunc(places, place.compare)
	return places, nil
}

// getArtifact answers the bytes of a deployment's artifact.
func getArtifact(ctx context.Context, c *call, p *idParams) (operation.Answer, error) {
	r, err := c.loadDeployment(ctx, c.Store, p.ID)
	if err != nil {
		return operation.Answer{}, err
	}
	if c.Artifacts == nil {
		return operation.Answer{}, operation.NotConfigured("This service does not keep artifacts.")
	}
	if r.Artifact == nil {
		return operation.Answer{}, operation.NotFound("Artifact")
	}
	digest := hex.EncodeToString(r.Artifact.SHA256)
	file, err := c.Artifacts.Open(ctx, digest)
	if errors.Is(err, fs.ErrNotExist) {
		return operation.Answer{}, operation.NotFound("Artifact")
	}
	if err != nil {
		return operation.Answer{}, err
	}
	return operation.Answer{
		Header: http.Header{"Content-Type": {"application/octet-stream"}},
		End:    func() { file.Close() },
		Stream: func(w http.ResponseWriter, r *http.Request) {
			ctx, release := c.Hold(r.Context())
			defer release()
			sendArtifact(ctx, w, file)
		},
	}, nil
}
