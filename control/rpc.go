package control

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/creachadair/jrpc2"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-go/weft/control/internal/audit"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/httpheader"
)

func rpcOperations() []*operation.Operation {
	return []*operation.Operation{{
		Name: "rpc", Method: http.MethodPost, Path: "/v1/rpc", Scopes: []string{}, RestOnly: true, Batch: true,
		Do: operation.Act[struct{}](nil),
	}}
}

// Limits of JSON-RPC.
const (
	maxRequests = 100      // of a batch
	maxRPCID    = 128      // bytes
	maxAnswers  = 16 << 20 // bytes of answers from which on a batch reads nothing more
)

// Codes of JSON-RPC 2.0, and ours.
const (
	rpcParseError     = -32700
	rpcInvalidRequest = -32600
	rpcNoMethod       = -32601
	rpcInvalidParams  = -32602
	rpcInternal       = -32603
	rpcOther          = -32000
)

// rpcCode is the code of a status.
func rpcCode(status int) int {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return rpcInvalidParams
	case http.StatusUnauthorized:
		return -32010
	case http.StatusForbidden:
		return -32011
	case http.StatusNotFound:
		return -32020
	case http.StatusConflict:
		return -32021
	case http.StatusTooManyRequests:
		return -32024
	case http.StatusInternalServerError:
		return rpcInternal
	case http.StatusNotImplemented:
		return -32025
	case http.StatusServiceUnavailable:
		return -32026
	}
	return rpcOther
}

// rpcError is the answer to a request that failed. An id of nil is null.
func rpcError(id string, code int, message string, data any) json.RawMessage {
	e := wire.RPCError{Jsonrpc: jrpc2.Version, ID: rpcID(id), Error: wire.RPCErrorObject{Code: code, Message: message}}
	if data != nil {
		raw, _ := operation.Answer{Body: data}.JSON() // of a problem
		e.Error.Data = &raw
	}
	raw, _ := operation.Answer{Body: e}.JSON()
	return raw
}

func rpcID(id string) json.RawMessage {
	if id == "" {
		return json.RawMessage("null")
	}
	return json.RawMessage(id)
}

// An rpcProblem is a problem as the data of an error.
type rpcProblem struct {
	*operation.Problem
	HTTPStatus int `json:"httpStatus"`
	RetryAfter int `json:"retryAfter,omitempty"` // seconds
}

// rpc answers a body of JSON-RPC 2.0. Its requests are counted by themselves. If none was and any was
// refused, the body counts as one request: what costs the service anything has a limit.
func (x *exchange) rpc(ctx context.Context, c *operation.Call, body []byte) (operation.Answer, *operation.Problem) {
	a := x.rpcAll(ctx, c, body)
	if x.refused && !x.counted {
		if limited := x.refusedBatch(ctx, c, nil); limited != nil {
			return operation.Answer{}, limited
		}
	}
	return a, nil
}

// refusedBatch takes a permit for a body that is refused as a whole. It returns why, or that the limit
// is reached.
func (x *exchange) refusedBatch(ctx context.Context, c *operation.Call, why *operation.Problem) *operation.Problem {
	a, limited := x.keys.Permit(context.WithoutCancel(ctx), c.Who) // also if the client has left
	a.Header(x.w.Header())
	if limited != nil {
		return limited
	}
	return why
}

// refuseRequest is rpcError for what is no request of an operation.
func (x *exchange) refuseRequest(id string, code int, message string) json.RawMessage {
	x.refused = true
	return rpcError(id, code, message, nil)
}

func (x *exchange) rpcAll(ctx context.Context, c *operation.Call, body []byte) operation.Answer {
	depth := operation.MaxDepth + 1 // the parameters are in a request
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) > 0 && first[0] == '[' {
		depth++
	}
	if err := operation.CheckJSON(body, depth); err != nil {
		return operation.Answer{Body: x.refuseRequest("", rpcParseError, "Parse error: the body "+err.Error())}
	}
	requests, err := jrpc2.ParseRequests(body)
	if err != nil {
		return operation.Answer{Body: x.refuseRequest("", rpcInvalidRequest, "Invalid Request")}
	}
	if n := len(requests); n == 0 || n > maxRequests {
		return operation.Answer{Body: x.refuseRequest("", rpcInvalidRequest, "Invalid Request: a batch has 1 to "+strconv.Itoa(maxRequests)+" requests")}
	}
	if !requests[0].Batch {
		if a := x.rpcOne(ctx, c, requests[0], 0); a != nil {
			return operation.Answer{Body: a}
		}
		return operation.Answer{Status: http.StatusNoContent}
	}
	answers := []byte{'['}
	for _, r := range requests {
		if a := x.rpcOne(ctx, c, r, len(answers)); a != nil {
			if len(answers) > 1 {
				answers = append(answers, ',')
			}
			answers = append(answers, a...)
		}
	}
	if len(answers) == 1 {
		return operation.Answer{Status: http.StatusNoContent}
	}
	return operation.Answer{Body: json.RawMessage(append(answers, ']'))}
}

// rpcOne executes one request: of a batch with so many bytes of answers. The answer to a notification is
// nil.
func (x *exchange) rpcOne(ctx context.Context, whole *operation.Call, r *jrpc2.ParsedRequest, answered int) json.RawMessage {
	switch {
	case r.Error != nil:
		return x.refuseRequest("", rpcInvalidRequest, "Invalid Request: "+r.Error.Message)
	case r.Method == "":
		return x.refuseRequest("", rpcInvalidRequest, "Invalid Request: method is required")
	case len(r.ID) > maxRPCID:
		return x.refuseRequest("", rpcInvalidRequest, "Invalid Request: id has more than 128 bytes")
	}
	reply := func(raw json.RawMessage) json.RawMessage {
		if r.ID == "" {
			return nil
		}
		return raw
	}
	op := x.router.byName[r.Method]
	if op == nil || op.RestOnly {
		return reply(x.refuseRequest(r.ID, rpcNoMethod, "Method not found: "+audit.Short(r.Method)))
	}
	c := &operation.Call{
		Env: x.env, Op: op, Who: whole.Who, Resource: op.Path, CorrelationID: x.correlationID,
		From: whole.From, Agent: whole.Agent, Wait: whole.Wait, Behalf: whole.Behalf,
	}
	if r.Batch {
		c.Wait = 0
	}
	began := time.Now()
	a, bad := x.rpcCall(ctx, c, r, answered)
	var result json.RawMessage
	if bad == nil {
		var err error
		if result, err = a.JSON(); err != nil {
			bad = operation.Internal(err)
		}
	}
	x.account(ctx, c, a, bad, time.Since(began))
	if bad != nil {
		q := *bad
		if q.CorrelationID == "" {
			q.CorrelationID = x.correlationID
		}
		return reply(rpcError(r.ID, rpcCode(q.Status), q.Message, &rpcProblem{Problem: &q, HTTPStatus: q.Status, RetryAfter: q.RetryAfter}))
	}
	if result == nil {
		result = json.RawMessage("null")
	}
	raw, err := operation.Answer{Body: wire.RPCResult{Jsonrpc: jrpc2.Version, ID: rpcID(r.ID), Result: result}}.JSON()
	if err != nil {
		return reply(rpcError(r.ID, rpcInternal, "Internal error", nil))
	}
	return reply(raw)
}

// rpcCall authorises and performs one request.
func (x *exchange) rpcCall(ctx context.Context, c *operation.Call, r *jrpc2.ParsedRequest, answered int) (_ operation.Answer, bad *operation.Problem) {
	defer guarded(&bad)
	raw, path, bad := rpcParams(c, r.Params)
	if path != nil {
		c.Resource = c.Op.Resource(path)
		c.Note.RunID = path["runId"]
	}
	if r.Batch && c.Op.Scopes != nil {
		if ended := x.ended(ctx, c.Who); ended != nil {
			return operation.Answer{}, ended
		}
	}
	if denied := c.Op.Permits(c.Who); denied != nil {
		x.refused = true
		return operation.Answer{}, denied
	}
	if c.Op.Scopes != nil {
		x.counted = true
		a, limited := x.keys.Permit(ctx, c.Who)
		a.Header(x.w.Header())
		if limited != nil {
			return operation.Answer{}, limited
		}
	}
	if bad != nil {
		return operation.Answer{}, bad
	}
	if c.Op.Method == http.MethodGet && answered >= maxAnswers {
		return operation.Answer{}, operation.NewProblem(http.StatusRequestEntityTooLarge, "too_large", "The answers to this batch have 16 MiB already")
	}
	if c.Op.Key == operation.KeyRequired && c.IdempotencyKey == "" {
		return operation.Answer{}, keyRequiredProblem()
	}
	return c.Perform(ctx, raw)
}

// ended returns why a batch does not go on: those before may have taken minutes.
func (x *exchange) ended(ctx context.Context, who *operation.Principal) *operation.Problem {
	if x.env.IsClosing() {
		return operation.Closing()
	}
	return x.keys.Check(ctx, who)
}

// rpcParams returns the parameters without the idempotency key, which it sets, and those of the REST path.
func rpcParams(c *operation.Call, params json.RawMessage) (jsontext.Value, map[string]string, *operation.Problem) {
	all := map[string]jsontext.Value{}
	if len(params) > 0 {
		if bytes.TrimSpace(params)[0] != '{' {
			return nil, nil, operation.Invalid(operation.Issue{Problem: "must be an object: parameters are by name"})
		}
		if err := jsonv2.Unmarshal(params, &all); err != nil {
			return nil, nil, operation.Invalid(operation.Issue{Problem: operation.SyntaxProblem(err).Error()})
		}
	}
	path := map[string]string{}
	for _, f := range c.Op.Do.Fields {
		if f.In != "path" {
			continue
		}
		var text string
		if v, ok := all[f.Name]; ok && jsonv2.Unmarshal(v, &text) == nil {
			path[f.Name] = text
		}
	}
	var bad *operation.Problem
	if v, ok := all["idempotencyKey"]; ok && c.Op.Key != operation.KeyUnused && c.Op.Field("idempotencyKey") == nil {
		delete(all, "idempotencyKey")
		if err := jsonv2.Unmarshal(v, &c.IdempotencyKey); err != nil || v.Kind() != jsontext.KindString {
			bad = operation.Invalid(operation.Issue{Path: "/idempotencyKey", Problem: "must be a string"})
		} else if err := httpheader.CheckKey(c.IdempotencyKey); err != nil {
			bad = operation.NewProblem(http.StatusBadRequest, "idempotency_key_invalid", err.Error())
		}
	}
	raw, err := jsonv2.Marshal(all, jsonv2.Deterministic(true))
	if err != nil {
		bad = operation.Invalid(operation.Issue{Problem: "is not valid JSON"})
	}
	return raw, path, bad
}
