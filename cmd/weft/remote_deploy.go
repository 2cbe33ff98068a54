package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/control/wire"
)

// deployments are the verbs about deployments of a control plane.
type deployments struct {
	Create   deploymentsCreate   `cmd:"" help:"Record a deployment. New runs do not start on it before it is activated."`
	List     deploymentsList     `cmd:"" help:"List deployments, newest first."`
	Get      deploymentsGet      `cmd:"" help:"Show a deployment as JSON."`
	Active   deploymentsActive   `cmd:"" help:"Show on which deployment new runs start."`
	Activate deploymentsActivate `cmd:"" help:"Have new runs start on a deployment, also to go back to an earlier one."`
}

type deploymentsCreate struct {
	plane
	Manifest string `arg:"" help:"The manifest: JSON such as {\"deploymentId\": \"shop-7\", \"workflows\": [{\"name\": \"checkout\"}]}, @FILE, or - for standard input."`
	Artifact string `type:"path" placeholder:"FILE" help:"A file that the control plane keeps with it."`
}

func (x *deploymentsCreate) Run(e *env) error {
	manifest, err := e.payload("manifest", x.Manifest)
	if err != nil {
		return err
	}
	var bytes []byte
	if x.Artifact != "" {
		if bytes, err = os.ReadFile(x.Artifact); err != nil {
			return misuse("read the artifact: %w", err)
		}
	}
	return e.remotely(x.plane, func(c *remote.Client) error {
		create := func() (wire.Deployment, error) { return c.CreateDeployment(e, manifest, nil) }
		if x.Artifact != "" {
			create = func() (wire.Deployment, error) { return c.UploadDeployment(e, manifest, bytes) }
		}
		d, err := create()
		if err != nil {
			return err
		}
		if e.JSON {
			return printJSON(e.out, d)
		}
		_, err = fmt.Fprintf(e.out, "%s: is recorded\n", word(d.DeploymentID))
		return err
	})
}

type deploymentsList struct {
	plane
	paged
}

func (x *deploymentsList) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		return tabled(e, x.paged, []string{"ID", "STATUS", "CREATED", "BY", "ACTIVATED"},
			func(r weft.PageRequest) (weft.Page[wire.Deployment], error) { return c.Deployments(e, r) },
			func(d wire.Deployment) []string {
				return []string{word(d.DeploymentID), or(text(d.Status)), at(d.CreatedAt), or(text(d.CreatedBy)), at(d.ActivatedAt)}
			})
	})
}

// oneDeployment is what a verb needs to know that is about a deployment.
type oneDeployment struct {
	plane
	ID string `arg:"" help:"The id of the deployment."`
}

type deploymentsGet struct{ oneDeployment }

func (x *deploymentsGet) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		d, err := c.Deployment(e, x.ID)
		if err != nil {
			return err
		}
		return printJSON(e.out, d)
	})
}

type deploymentsActive struct{ plane }

func (x *deploymentsActive) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		a, err := c.ActiveDeployment(e)
		if err != nil {
			return err
		}
		if e.JSON {
			return printJSON(e.out, a)
		}
		_, err = fmt.Fprintln(e.out, word(a.DeploymentID))
		return err
	})
}

type deploymentsActivate struct {
	oneDeployment
	Expect     string `xor:"expect" placeholder:"ID" help:"Do nothing and fail unless this deployment is active now."`
	ExpectNone bool   `xor:"expect" help:"Do nothing and fail if any deployment is active now."`
	sure
}

func (x *deploymentsActivate) Run(e *env) error {
	var expected remote.Expected
	switch {
	case x.Expect != "":
		expected = remote.IfActive(x.Expect)
	case x.ExpectNone:
		expected = remote.IfNoneActive()
	}
	return e.remotely(x.plane, func(c *remote.Client) error {
		a, err := c.Activate(e, x.ID, expected, x.by())
		if err != nil {
			return err
		}
		if a.LiveEngines == 0 {
			e.note("no living engine is of deployment %s: its runs wait for one", word(x.ID))
		}
		if e.JSON {
			return printJSON(e.out, a)
		}
		done := "is active"
		if !a.Changed {
			done = "was active already"
		}
		_, err = fmt.Fprintf(e.out, "%s: %s\n", word(x.ID), done)
		return err
	})
}

// keys are the verbs about keys.
type keys struct {
	Create keysCreate `cmd:"" help:"Make a key. Prints its secret, which nobody can ask for again."`
	List   keysList   `cmd:"" help:"List keys. No secret is shown."`
	Rotate keysRotate `cmd:"" help:"Give a key a new secret, and print it. The former one stays valid for some time."`
	Revoke keysRevoke `cmd:"" help:"Make all secrets of a key invalid at once."`
}

// anyPlane is the control plane, or the store if it is to be written or no URL is given.
type anyPlane struct{ plane }

// with calls f with a client of the control plane, or of one on the store.
func (p anyPlane) with(e *env, h homed, f func(c *remote.Client) error) error {
	if p.meansStore(e.Store, e.Write, os.Getenv) {
		home, err := h.home()
		if err != nil {
			return err
		}
		return e.onStore(home, f)
	}
	if h.Home != "" {
		return misuse("--home is for a store: a control plane has its own")
	}
	return e.remotely(p.plane, f)
}

// meansStore reports whether the store is meant, and not the control plane. The environment may name both. --write,
// which no verb over a control plane needs, says that the store is meant, and so does --store beside a control plane that only
// the environment names.
func (p anyPlane) meansStore(store string, write bool, environment func(string) string) bool {
	flag := store != "" && store != environment("WEFT_STORE")
	return write || store != "" && p.URL == "" || flag && p.URL == environment("WEFT_URL")
}

// namespaced says which namespace a key has.
type namespaced struct {
	Project     string `placeholder:"NAME" help:"The project of the key. By default that of the key with which this is asked for, and in a store that of --home."`
	Environment string `placeholder:"NAME" help:"The environment of the key, likewise."`
	homed
}

// homed says which home the service has.
type homed struct {
	Home string `placeholder:"PROJECT/ENVIRONMENT" help:"In a store, Config.Home of the service: its keys can read there who has done this. By default default/default."`
}

// home is the home of a plane on the store: its audit trail says what was done.
func (h homed) home() (control.Namespace, error) {
	project, environment, ok := strings.Cut(h.Home, "/")
	if h.Home != "" && (!ok || project == "" || environment == "") {
		return control.Namespace{}, misuse("--home %q is not PROJECT/ENVIRONMENT", h.Home)
	}
	return control.Namespace{Project: project, Environment: environment}, nil
}

// optional returns nil for what is not given.
func optional[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

type keysCreate struct {
	anyPlane
	namespaced
	ID      string        `arg:"" help:"The id of the key."`
	Scope   []string      `required:"" placeholder:"SCOPE" help:"What it may do, such as runs:read or admin. Repeat it for several."`
	Expires time.Duration `placeholder:"DURATION" help:"For how long it is valid, such as 720h. By default until it is revoked."`
}

func (x *keysCreate) Run(e *env) error {
	if x.Expires < 0 {
		return misuse("--expires %v is negative", x.Expires)
	}
	k := wire.CreateKey{KeyID: &x.ID, Project: optional(x.Project), Environment: optional(x.Environment)}
	for _, s := range x.Scope {
		k.Scopes = append(k.Scopes, wire.Scope(s))
	}
	if x.Expires > 0 {
		k.ExpiresAt = optional(time.Now().Add(x.Expires).UTC())
	}
	return x.with(e, x.homed, func(c *remote.Client) error {
		made, err := c.CreateKey(e, k)
		if err != nil {
			return err
		}
		return e.secret(made)
	})
}

// secret prints a new secret, and nothing else, so that it can be written into a file.
func (e *env) secret(k wire.KeySecret) error {
	if e.JSON {
		return printJSON(e.out, k)
	}
	if !k.FormerValidUntil.IsZero() {
		e.note("the former secret of %s is valid until %s", word(k.KeyID), at(k.FormerValidUntil))
	}
	_, err := fmt.Fprintln(e.out, text(k.Secret))
	return err
}

type keysList struct {
	anyPlane
	paged
	homed
}

func (x *keysList) Run(e *env) error {
	return x.with(e, x.homed, func(c *remote.Client) error {
		return tabled(e, x.paged, []string{"ID", "PROJECT", "ENVIRONMENT", "SCOPES", "CREATED", "EXPIRES", "REVOKED"},
			func(r weft.PageRequest) (weft.Page[wire.Key], error) { return c.Keys(e, r) },
			func(k wire.Key) []string {
				scopes, _ := json.Marshal(k.Scopes) // strings have JSON
				return []string{word(k.KeyID), or(text(k.Project)), or(text(k.Environment)), text(string(scopes)), at(k.CreatedAt), at(k.ExpiresAt), at(k.RevokedAt)}
			})
	})
}

type keysRotate struct {
	anyPlane
	namespaced
	ID    string        `arg:"" help:"The id of the key."`
	Grace time.Duration `default:"1h" placeholder:"DURATION" help:"For how long the former secret stays valid (default 1h)."`
}

func (x *keysRotate) Run(e *env) error {
	if x.Grace < 0 || x.Grace%time.Second != 0 {
		return misuse("--grace %v is not a number of whole seconds", x.Grace)
	}
	grace := int(x.Grace / time.Second)
	return x.with(e, x.homed, func(c *remote.Client) error {
		made, err := c.RotateKey(e, x.ID, wire.RotateKey{GraceSeconds: &grace, Project: optional(x.Project), Environment: optional(x.Environment)})
		if err != nil {
			return err
		}
		return e.secret(made)
	})
}

type keysRevoke struct {
	anyPlane
	namespaced
	ID string `arg:"" help:"The id of the key."`
}

func (x *keysRevoke) Run(e *env) error {
	return x.with(e, x.homed, func(c *remote.Client) error {
		last := x.isLastAdmin(e, c) // afterwards the caller may have no key
		if err := c.RevokeKey(e, x.ID, x.Project, x.Environment); err != nil {
			return err
		}
		if last {
			e.note("%s was the last valid key of its namespace with the scope admin: weft keys create with --store and --write makes another one", word(x.ID))
		}
		return e.done(x.ID, "is revoked")
	})
}

// isLastAdmin reports whether the key is the only valid one of its namespace that may make keys. It is false if that is not known.
func (x *keysRevoke) isLastAdmin(e *env, c *remote.Client) bool {
	var these, others []wire.Key
	read := func(r weft.PageRequest) (weft.Page[wire.Key], error) { return c.Keys(e, r) }
	err := pages(e, paged{}, read, func(k wire.Key) error {
		switch valid := k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(time.Now())); {
		case !valid, !slices.Contains(k.Scopes, wire.ScopeAdmin), strings.HasPrefix(k.KeyID, ownKeys):
		case k.KeyID == x.ID && (x.Project == "" || k.Project == x.Project) && (x.Environment == "" || k.Environment == x.Environment):
			these = append(these, k)
		default:
			others = append(others, k)
		}
		return nil
	}, func() {}, word)
	return err == nil && len(these) == 1 && !slices.ContainsFunc(others, func(k wire.Key) bool {
		return k.Project == these[0].Project && k.Environment == these[0].Environment
	})
}
