package control

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

func keyOperations() []*operation {
	admin := []string{scopeAdmin}
	return []*operation{
		{name: "keys.create", method: http.MethodPost, path: "/v1/keys", scopes: admin, do: act(createKeyOperation)},
		{name: "keys.list", method: http.MethodGet, path: "/v1/keys", scopes: admin, do: act(listKeys)},
		{name: "keys.rotate", method: http.MethodPost, path: "/v1/keys/{id}/rotate", scopes: admin, do: act(rotateKeyOperation)},
		{name: "keys.revoke", method: http.MethodDelete, path: "/v1/keys/{id}", scopes: admin, do: act(revokeKeyOperation)},
	}
}

var keyIDPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// Limits of the grace of a former secret.
const (
	defaultGrace = time.Hour
	maxGrace     = 30 * 24 * time.Hour
)

func checkScopes(scopes []string) (issues []issue) {
	if len(scopes) == 0 {
		issues = append(issues, issue{Path: "/scopes", Problem: "must have at least one"})
	}
	for _, s := range scopes {
		if !slices.Contains(allScopes, s) {
			issues = append(issues, issue{Path: "/scopes", Problem: "has an unknown one; there are " + strings.Join(allScopes, ", ")})
			break
		}
	}
	return issues
}

// namespaceOf returns the namespace that an admin means. Another one than its own is for admins of home.
func namespaceOf(c *call, project, environment *string) (space, error) {
	ns := c.who.space
	if project != nil {
		ns.Project = *project
	}
	if environment != nil {
		ns.Environment = *environment
	}
	if issues := ns.check(); len(issues) > 0 {
		return ns, invalid(issues...)
	}
	if ns != c.who.space && !c.who.home {
		p := missingScope(scopeAdmin)
		p.Recovery = "Only a key of the home namespace has to do with keys of another one."
		return ns, p
	}
	return ns, nil
}

type createKeyParams struct{ wire.CreateKey }

func (p *createKeyParams) Check() (issues []issue) {
	if p.KeyID != nil && !keyIDPattern.MatchString(*p.KeyID) {
		issues = append(issues, issue{Path: "/keyId", Problem: "must be 1 to 100 of A-Z a-z 0-9 _ . -"})
	}
	if p.ExpiresAt != nil && !p.ExpiresAt.After(time.Now()) {
		issues = append(issues, issue{Path: "/expiresAt", Problem: "has passed"})
	}
	return append(issues, checkScopes(texts(p.Scopes))...)
}

// secretLost is what to do if the outcome of a change is unknown that gives a key a secret.
const secretLost = "List the keys. If the change was made, rotate the key: the secret is told only once."

// InsteadOfAgain is what to do if the outcome is unknown.
func (*createKeyParams) InsteadOfAgain() string { return secretLost }

func texts(scopes []wire.Scope) []string {
	s := make([]string, len(scopes))
	for i, scope := range scopes {
		s[i] = string(scope)
	}
	return s
}

func createKeyOperation(ctx context.Context, c *call, p *createKeyParams) (answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return answer{}, err
	}
	k := Key{Project: ns.Project, Environment: ns.Environment, Secret: newSecret(), Scopes: texts(p.Scopes), ID: "key_" + newULID(time.Now())}
	if p.KeyID != nil {
		k.ID = *p.KeyID
	}
	if p.ExpiresAt != nil {
		k.ExpiresAt = *p.ExpiresAt
	}
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		before, err := readKeyID(ctx, tx, ns, k.ID)
		if err != nil {
			return answer{}, err
		}
		if before != nil {
			return answer{}, newProblem(http.StatusConflict, "key_exists", "The namespace has a key with this id")
		}
		now := time.Now()
		change := createKey(k, now)
		if change.err != nil {
			return answer{}, change.err
		}
		secret := secretOf(newKeyRecord(k, now), k.Secret)
		return answer{status: http.StatusCreated, body: secret}, tx.Commit(ctx, change.Batch)
	})
}

type rotateKeyParams struct {
	ID string `json:"id" in:"path"`
	wire.RotateKey
}

func (p *rotateKeyParams) Check() (issues []issue) {
	if p.GraceSeconds != nil && (*p.GraceSeconds < 0 || *p.GraceSeconds > int(maxGrace/time.Second)) {
		issues = append(issues, issue{Path: "/graceSeconds", Problem: "must be 0 to 2592000"})
	}
	return issues
}

// InsteadOfAgain is what to do if the outcome is unknown.
func (*rotateKeyParams) InsteadOfAgain() string { return secretLost }

func rotateKeyOperation(ctx context.Context, c *call, p *rotateKeyParams) (answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return answer{}, err
	}
	grace := defaultGrace
	if p.GraceSeconds != nil {
		grace = time.Duration(*p.GraceSeconds) * time.Second
	}
	secret := newSecret()
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		id, inUse, err := readKeyWithID(ctx, tx, ns, p.ID)
		if err != nil {
			return answer{}, err
		}
		now := time.Now()
		if id == nil || !inUse.valid(now) {
			return answer{}, notFound("Key") // one that is revoked or expired gets no secret
		}
		next := *inUse
		next.Hash, next.raw, next.unknown = secretHash(secret), nil, nil
		change := rotateKey(id, inUse, &next, grace, now)
		if change.err != nil {
			return answer{}, change.err
		}
		body := secretOf(&next, secret)
		body.FormerValidUntil = micro(earliest(now.Add(grace).UnixMicro(), inUse.ExpiresAt))
		return answer{body: body}, tx.Commit(ctx, change.Batch)
	})
}

// earliest returns the earlier of two times, of which b may be zero.
func earliest(a, b int64) int64 {
	if b != 0 && b < a {
		return b
	}
	return a
}

type oneKeyParams struct {
	ID          string  `json:"id" in:"path"`
	Project     *string `json:"project,omitempty" in:"query"`
	Environment *string `json:"environment,omitempty" in:"query"`
}

func revokeKeyOperation(ctx context.Context, c *call, p *oneKeyParams) (answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return answer{}, err
	}
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		id, secrets, err := readSecrets(ctx, tx, ns, p.ID, 0)
		switch {
		case err != nil:
			return answer{}, err
		case id == nil:
			return answer{}, notFound("Key")
		case id.RevokedAt != 0:
			return answer{status: http.StatusNoContent}, nil
		}
		change := revokeKey(id, secrets, time.Now())
		if change.err != nil {
			return answer{}, change.err
		}
		return answer{status: http.StatusNoContent}, tx.Commit(ctx, change.Batch)
	})
}

type listKeysParams struct {
	Project     *string `json:"project,omitempty" in:"query"`
	Environment *string `json:"environment,omitempty" in:"query"`
	paging
}

// listKeys lists the keys of a namespace by id, or, for an admin of home who names none, of all.
func listKeys(ctx context.Context, c *call, p *listKeysParams) (answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return answer{}, err
	}
	r := keys.ControlKeyIDs(ns.tenant())
	if c.who.home && p.Project == nil && p.Environment == nil {
		r = keys.ControlKeyIDs("")
	}
	page := weft.Page[wire.Key]{Next: p.Cursor}
	list := listing{Range: r, paging: p.paging}
	err = list.walk(ctx, c.store, func(e storage.Entry) (bool, error) {
		found := &keyIDRecord{}
		if _, err := record.Open(e.Key, e.Value, recordVersion, found); err != nil {
			return false, err
		}
		of, name, err := keys.ControlNames(e.Key)
		if err != nil {
			return false, err
		}
		project, environment, _ := strings.Cut(of, "/")
		_, inUse, err := readKeyWithID(ctx, c.store, space{Project: project, Environment: environment}, name)
		if err != nil || inUse == nil {
			return false, err
		}
		page.Data = append(page.Data, keyOf(inUse))
		return true, nil
	}, func(next string, more bool) { page.Next, page.HasMore = next, more })
	if err != nil {
		return answer{}, err
	}
	return answer{body: page}, nil
}

func keyOf(k *keyRecord) wire.Key {
	w := wire.Key{KeyID: k.ID, Project: k.Project, Environment: k.Environment, CreatedAt: micro(k.CreatedAt), ExpiresAt: micro(k.ExpiresAt), RevokedAt: micro(k.RevokedAt)}
	for _, s := range k.Scopes {
		w.Scopes = append(w.Scopes, wire.Scope(s))
	}
	return w
}

func secretOf(k *keyRecord, secret string) wire.KeySecret {
	w := keyOf(k)
	return wire.KeySecret{
		KeyID: w.KeyID, Project: w.Project, Environment: w.Environment, Scopes: w.Scopes,
		CreatedAt: w.CreatedAt, ExpiresAt: w.ExpiresAt, Secret: secret,
	}
}
