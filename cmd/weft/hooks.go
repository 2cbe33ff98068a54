package main

import (
	"io"
	"os"
	"strings"

	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/signal"
)

// hooks are the verbs about hooks, in the store or over a control plane.
type hooks struct {
	Resume hooksResume `cmd:"" help:"Resume the open hook that has a token. Prints the id with which it was resumed."`
}

type hooksResume struct {
	anyPlane
	Token   string `arg:"" help:"The token of the hook, or - for standard input: other users of this machine can see the command line."`
	ID      string `name:"id" placeholder:"ID" help:"The id of the call, such as that of the provider's event. The same id again resumes once. By default one is generated."`
	Payload string `default:"null" placeholder:"JSON" help:"What the workflow receives: JSON, @FILE, or - for standard input (default null)."`
}

func (x *hooksResume) Run(e *env) error {
	m, err := x.message(e)
	if err != nil {
		return err
	}
	if x.meansStore(e.Store, e.Write, os.Getenv) {
		return e.writing(func(c *client) error { return e.send(m, c.SendSignal) })
	}
	return e.remotely(x.plane, func(c *remote.Client) error { return e.send(m, c.SendSignal) })
}

// message reads the token and the payload.
func (x *hooksResume) message(e *env) (signal.Message, error) {
	m := signal.Message{Name: "hook"}
	if x.ID != "" {
		m.ID = &x.ID
	}
	token := x.Token
	if token == "-" {
		if x.Payload == "-" {
			return m, misuse("standard input has the token, or the --payload")
		}
		raw, err := io.ReadAll(io.LimitReader(e.in, 1<<10)) // no token is as long
		if err != nil {
			return m, misuse("read the token: %w", err)
		}
		token = strings.TrimRight(string(raw), "\r\n")
	}
	m.Token = &token
	payload, err := e.payload("payload", x.Payload)
	m.Payload = payload
	return m, err
}
