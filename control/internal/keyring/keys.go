package keyring

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// These have rules of their own, and what they answer cannot be had again. See operation.Checker.
var (
	_ operation.Checker      = (*createKeyParams)(nil)
	_ operation.Checker      = (*listKeysParams)(nil)
	_ operation.Checker      = (*rotateKeyParams)(nil)
	_ operation.Unrepeatable = (*createKeyParams)(nil)
	_ operation.Unrepeatable = (*rotateKeyParams)(nil)
)

// Operations is the table of the operations on keys.
func Operations() []*operation.Operation {
	admin := []string{operation.ScopeAdmin}
	return []*operation.Operation{
		{Name: "keys.create", Method: http.MethodPost, Path: "/v1/keys", Scopes: admin, Do: operation.Act(create)},
		{Name: "keys.list", Method: http.MethodGet, Path: "/v1/keys", Scopes: admin, Do: operation.Act(list)},
		{Name: "keys.rotate", Method: http.MethodPost, Path: "/v1/keys/{id}/rotate", Scopes: admin, Do: operation.Act(rotate)},
		{Name: "keys.revoke", Method: http.MethodDelete, Path: "/v1/keys/{id}", Scopes: admin, Do: operation.Act(revoke)},
	}
}

var keyIDPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// IsID reports whether a key can have this id.
func IsID(id string) bool { return keyIDPattern.MatchString(id) }

// Limits of the grace of a former secret.
const (
	defaultGrace = time.Hour
	maxGrace     = 30 * 24 * time.Hour
)

// CheckScopes returns what is wrong with the scopes of a key.
func CheckScopes(scopes []string) (issues []operation.Issue) {
	if len(scopes) == 0 {
		issues = append(issues, operation.Issue{Path: "/scopes", Problem: "must have at least one"})
	}
	for _, s := range scopes {
		if !slices.Contains(operation.AllScopes, s) {
			issues = append(issues, operation.Issue{Path: "/scopes", Problem: "has an unknown one; there are " + strings.Join(operation.AllScopes, ", ")})
			break
		}
	}
	return issues
}

// namespaceOf returns the namespace that an admin means. Another one than its own is for admins of home.
func namespaceOf(c *operation.Call, project, environment *string) (operation.Namespace, error) {
	ns := c.Who.Namespace
	if project != nil {
		ns.Project = *project
	}
	if environment != nil {
		ns.Environment = *environment
	}
	if issues := ns.Check(); len(issues) > 0 {
		return ns, operation.Invalid(issues...)
	}
	if ns != c.Who.Namespace && !c.Who.Home {
		p := operation.MissingScope(operation.ScopeAdmin)
		p.Recovery = "Only a key of the home namespace has to do with keys of another one."
		return ns, p
	}
	return ns, nil
}

type createKeyParams struct{ wire.CreateKey }

func (p *createKeyParams) Check() (issues []operation.Issue) {
	if p.KeyID != nil && !IsID(*p.KeyID) {
		issues = append(issues, operation.Issue{Path: "/keyId", Problem: "must be 1 to 100 of A-Z a-z 0-9 _ . -"})
	}
	if p.ExpiresAt != nil && !p.ExpiresAt.After(time.Now()) {
		issues = append(issues, operation.Issue{Path: "/expiresAt", Problem: "has passed"})
	}
	return append(issues, CheckScopes(texts(p.Scopes))...)
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

func create(ctx context.Context, c *operation.Call, p *createKeyParams) (operation.Answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return operation.Answer{}, err
	}
	k := Key{Project: ns.Project, Environment: ns.Environment, Secret: newSecret(), Scopes: texts(p.Scopes), ID: "key_" + ids.ULID(time.Now())}
	if p.KeyID != nil {
		k.ID = *p.KeyID
	}
	if p.ExpiresAt != nil {
		k.ExpiresAt = *p.ExpiresAt
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		before, err := readKeyID(ctx, tx, ns, k.ID)
		if err != nil {
			return operation.Answer{}, err
		}
		if before != nil {
			return operation.Answer{}, operation.NewProblem(http.StatusConflict, "key_exists", "The namespace has a key with this id")
		}
		now := time.Now()
		change := createKey(k, now)
		if change.Err != nil {
			return operation.Answer{}, change.Err
		}
		secret := secretOf(newKeyRecord(k, now), k.Secret)
		return operation.Answer{Status: http.StatusCreated, Body: secret}, tx.Commit(ctx, change.Batch)
	})
}

type rotateKeyParams struct {
	ID string `json:"id" in:"path"`
	wire.RotateKey
}

func (p *rotateKeyParams) Check() (issues []operation.Issue) {
	if p.GraceSeconds != nil && (*p.GraceSeconds < 0 || *p.GraceSeconds > int(maxGrace/time.Second)) {
		issues = append(issues, operation.Issue{Path: "/graceSeconds", Problem: "must be 0 to 2592000"})
	}
	return issues
}

// InsteadOfAgain is what to do if the outcome is unknown.
func (*rotateKeyParams) InsteadOfAgain() string { return secretLost }

func rotate(ctx context.Context, c *operation.Call, p *rotateKeyParams) (operation.Answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return operation.Answer{}, err
	}
	grace := defaultGrace
	if p.GraceSeconds != nil {
		grace = time.Duration(*p.GraceSeconds) * time.Second
	}
	secret := newSecret()
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, secrets, err := readSecrets(ctx, c.Store, ns, p.ID, newest)
		if err == nil && id != nil {
			err = secrets[0].damage
		}
		if err != nil {
			return operation.Answer{}, err
		}
		now := time.Now()
		if id == nil || !secrets[0].valid(now) {
			return operation.Answer{}, operation.NotFound("Key") // one that is revoked or expired gets no secret
		}
		if err := revokeOlder(ctx, c.Store, id); err != nil {
			return operation.Answer{}, err
		}
		next := *secrets[0]
		next.Hash, next.raw, next.unknown = secretHash(secret), nil, nil
		change := rotateKey(id, secrets, &next, grace, now)
		if change.Err != nil {
			return operation.Answer{}, change.Err
		}
		body := secretOf(&next, secret)
		body.FormerValidUntil = records.Time(earliest(now.Add(grace).UnixMicro(), next.ExpiresAt))
		return operation.Answer{Body: body}, tx.Commit(ctx, change.Batch)
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

func revoke(ctx context.Context, c *operation.Call, p *oneKeyParams) (operation.Answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return operation.Answer{}, err
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, secrets, err := readSecrets(ctx, c.Store, ns, p.ID, newest)
		switch {
		case err != nil:
			return operation.Answer{}, err
		case id == nil:
			return operation.Answer{}, operation.NotFound("Key")
		}
		if len(id.Hashes) > newest { // those that can be in use first: there may be more of the others than a call has time for
			if err := revokeSecrets(ctx, c.Store, secrets); err != nil {
				return operation.Answer{}, err
			}
			if err := revokeOlder(ctx, c.Store, id); err != nil {
				return operation.Answer{}, err
			}
			if secrets, err = readRecords(ctx, c.Store, id.Hashes[:newest]); err != nil {
				return operation.Answer{}, err
			}
		}
		change := revokeKey(id, secrets, time.Now())
		if change.Err != nil {
			return operation.Answer{}, change.Err
		}
		return operation.Answer{Status: http.StatusNoContent}, tx.Commit(ctx, change.Batch)
	})
}

type listKeysParams struct {
	Project     *string `json:"project,omitempty" in:"query"`
	Environment *string `json:"environment,omitempty" in:"query"`
	operation.Paging
}

// list lists the keys of a namespace by id, or, for an admin of home who names none, of all.
func list(ctx context.Context, c *operation.Call, p *listKeysParams) (operation.Answer, error) {
	ns, err := namespaceOf(c, p.Project, p.Environment)
	if err != nil {
		return operation.Answer{}, err
	}
	r := keys.ControlKeyIDs(ns.Tenant())
	if c.Who.Home && p.Project == nil && p.Environment == nil {
		r = keys.ControlKeyIDs("")
	}
	page, err := operation.PageOf(ctx, c.Store, operation.Listing{Range: r, Paging: p.Paging}, func(e storage.Entry) (k wire.Key, ok bool, err error) {
		found := &keyIDRecord{}
		if _, err := record.Open(e.Key, e.Value, records.Version, found); err != nil {
			return k, false, err
		}
		of, name, err := keys.ControlNames(e.Key)
		if err != nil {
			return k, false, err
		}
		project, environment, _ := strings.Cut(of, "/")
		_, inUse, err := readKeyWithID(ctx, c.Store, operation.Namespace{Project: project, Environment: environment}, name)
		if err == nil && inUse != nil {
			err = inUse.damage
		}
		if err != nil || inUse == nil {
			return k, false, err
		}
		return keyOf(inUse), true, nil
	})
	return operation.Answer{Body: page}, err
}

func keyOf(k *keyRecord) wire.Key {
	w := wire.Key{KeyID: k.ID, Project: k.Project, Environment: k.Environment, CreatedAt: records.Time(k.CreatedAt), ExpiresAt: records.Time(k.ExpiresAt), RevokedAt: records.Time(k.RevokedAt)}
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
