package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Codes that the client itself gives to an Error.
const (
	CodeNoAnswer  = "no_answer"  // no attempt was answered; the Status is 0
	CodeBadAnswer = "bad_answer" // the answer is not one of a control plane
)

// correlationHeader is a header of every answer of a control plane, and of nobody else's.
const correlationHeader = "X-Workflow-Correlation-Id"

// An Error says that a control plane has refused a call, or has not answered it. It unwraps to the
// error that the engine returns in process, if there is one: see its Code.
//
//	invalid_request and other 400, too_large    engine.ErrInvalid
//	not_found                                   engine.ErrNotFound
//	run_exists                                  a *engine.ExistsError, engine.ErrExists
//	run_terminal                                a *engine.TerminalError, engine.ErrTerminal
//	not_applicable, active_changed              engine.ErrNotApplicable
//	not_applicable, of a hook's token           a *signal.TokenError, signal.ErrTokenTaken
//	no_active_deployment                        engine.ErrNoActiveDeployment
//	SignalPayloadConflict                       a *signal.ConflictError, signal.ErrConflict
//	SignalAcceptanceIndeterminate               a *signal.IndeterminateError, signal.ErrConflict
//	update_rejected                             a *engine.RejectedError, engine.ErrRejected
//	update_failed                               a *engine.UpdateError
//	update_mismatch, bulk_exists                engine.ErrMismatch
//	busy, of an update                          engine.ErrBusy
//	no_value                                    a *engine.NoValueError, engine.ErrNotFound
//	damaged                                     storage.ErrCorrupt
//	closing                                     engine.ErrClosed
//	no_answer                                   the error of the connection
type Error struct {
	Status        int           // of the answer; 0: there was none
	Code          string        // such as "run_exists"
	Message       string        // for people
	CorrelationID string        // of the answer, in the logs and the audit trail of the control plane
	Retry         string        // whether a repetition may help: "never", "same-key", "new-key" or ""
	RetryAfter    time.Duration // what the last answer has asked for; 0: it has not
	Unknown       bool          // the call may have taken effect
	Body          []byte        // the answer, which may be of a proxy; nil if its status was of success

	call string
	err  error
}

func (e *Error) Error() string {
	s := "client: " + e.call + ": " + e.answer()
	if e.Unknown {
		s += ", outcome unknown"
	}
	if e.CorrelationID != "" {
		s += " (" + e.CorrelationID + ")"
	}
	return s
}

// answer is what the answer says.
func (e *Error) answer() string {
	if e.Status == 0 {
		return e.Code + ": " + e.Message
	}
	return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.err }

// A subject is what a call is about, for the error that it returns in process.
type subject struct {
	run, workflow, signal, signalID, update, updateID, value string

	awaits bool // the call waits for a value
}

// A problem is an error as a control plane answers it.
type problem struct {
	Code          string  `json:"code"`
	Message       string  `json:"message"`
	Detail        string  `json:"detail"`
	Retry         string  `json:"retry"`
	CorrelationID string  `json:"correlationId"`
	Required      any     `json:"required"`
	Details       details `json:"details"`
}

// details are those of all problems.
type details struct {
	RunID  string            `json:"runId"`
	Status checkpoint.Status `json:"status"`
	Same   bool              `json:"same"`

	WorkflowID string `json:"workflowId"`
	SignalName string `json:"signalName"`
	SignalID   string `json:"signalId"`

	Holder string `json:"holder"` // the run whose hook has the token

	Error wire.StructuredError `json:"error"`

	Issues []wire.Issue `json:"issues"`
}

// listed returns message with the problems of a request behind it.
func (d *details) listed(message string) string {
	for i, issue := range d.Issues {
		separator := "; "
		if i == 0 {
			message, separator = strings.TrimSuffix(message, "."), ": "
		}
		message += separator + strings.TrimSpace(issue.Path+" "+issue.Problem)
	}
	return message
}

// errorOf returns the error of an answer that is not successful. What is no problem of a control
// plane, as of a proxy, gets CodeBadAnswer, also if it is JSON with a code.
func errorOf(r *request, a reply, now time.Time) *Error {
	e := &Error{
		Status: a.status, Body: a.body, call: r.what,
		CorrelationID: a.header.Get(correlationHeader),
		RetryAfter:    afterOf(a.header, now),
	}
	var p problem
	if a.header.Get(correlationHeader) != "" && mediaType(a.header) == "application/problem+json" && json.Unmarshal(a.body, &p) != nil {
		p = problem{}
	}
	e.Code, e.Message, e.Retry = p.Code, p.Message, p.Retry
	if e.Message == "" {
		e.Message = p.Detail
	}
	e.Message = p.Details.listed(e.Message)
	switch {
	case e.Code == "" && a.status >= 300 && a.status < 400:
		e.Code, e.Message = CodeBadAnswer, "the server redirects"+to(a.header)+", which this client does not follow: give the control plane's own address"
	case e.Code == "":
		e.Code, e.Message = CodeBadAnswer, fmt.Sprintf("the answer is not of a control plane: %s", http.StatusText(a.status))
	}
	e.err = p.cause(r.about, a.status, e)
	return e
}

// mediaType returns the media type of an answer, without parameters.
func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}

// to returns where a redirection leads, without what may be a secret.
func to(h http.Header) string {
	u, err := url.Parse(h.Get("Location"))
	if err != nil || u.Host == "" {
		return ""
	}
	return " to " + u.Host
}

// cause returns the error that the engine returns in process.
func (p *problem) cause(about subject, status int, e *Error) error {
	run := cmp.Or(p.Details.RunID, p.Details.WorkflowID, about.run)
	switch wire.Code(p.Code) {
	case "":
		return nil
	case wire.CodeNotFound:
		return weft.ErrNotFound
	case wire.CodeRunExists:
		return &weft.ExistsError{WorkflowID: run, Workflow: about.workflow, Asked: about.workflow, Status: p.Details.Status, Same: p.Details.Same}
	case wire.CodeRunTerminal:
		return &weft.TerminalError{WorkflowID: run, Status: p.Details.Status}
	case wire.CodeNotApplicable, wire.CodeActiveChanged:
		if p.Details.Holder != "" {
			return &signal.TokenError{WorkflowID: p.Details.Holder}
		}
		return weft.ErrNotApplicable
	case wire.CodeNoActiveDeployment:
		return weft.ErrNoActiveDeployment
	case wire.CodeSignalPayloadConflict:
		return &signal.ConflictError{WorkflowID: run, SignalName: cmp.Or(p.Details.SignalName, about.signal), SignalID: cmp.Or(p.Details.SignalID, about.signalID)}
	case wire.CodeSignalAcceptanceIndeterminate:
		return &signal.IndeterminateError{WorkflowID: run, SignalName: cmp.Or(p.Details.SignalName, about.signal), SignalID: cmp.Or(p.Details.SignalID, about.signalID), CorrelationID: cmp.Or(p.CorrelationID, e.CorrelationID)}
	case wire.CodeUpdateRejected:
		return &weft.RejectedError{WorkflowID: run, Update: about.update, UpdateID: about.updateID, Message: p.Details.Error.Message, SentinelText: p.Details.Error.Code}
	case wire.CodeUpdateFailed:
		return &weft.UpdateError{
			WorkflowID: run, Update: about.update, UpdateID: about.updateID, Message: p.Details.Error.Message, Stack: p.Details.Error.Stack,
			Sentinel: sentinelOfUpdate(p.Details.Error.Code), SentinelText: p.Details.Error.Code,
		}
	case wire.CodeUpdateMismatch, wire.CodeBulkExists:
		return weft.ErrMismatch
	case wire.CodeBusy:
		if about.update != "" {
			return weft.ErrBusy
		}
	case wire.CodeNoValue:
		if p.Details.Status.Terminal() && about.awaits {
			return &weft.TerminalError{WorkflowID: run, Status: p.Details.Status}
		}
		return &weft.NoValueError{WorkflowID: run, Name: about.value}
	case wire.CodeDamaged:
		return storage.ErrCorrupt
	case wire.CodeClosing:
		return weft.ErrClosed
	}
	if status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge {
		return weft.ErrInvalid
	}
	return nil
}

// sentinelOfUpdate returns the sentinel that any update may fail with, by its text.
func sentinelOfUpdate(text string) error {
	for _, s := range []error{weft.ErrTerminated, weft.ErrCancelled, weft.ErrTimeout} {
		if s.Error() == text {
			return s
		}
	}
	return nil
}
