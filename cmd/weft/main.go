// Weft is the command for those who operate services with durable workflows. It opens a
// store and shows what is in it, or acts on a workflow. It needs neither the service's
// code nor a running engine, and executes nothing itself but a demonstration.
//
//	weft list --store sqlite:orders.db
//	weft describe order-42 --store postgres://localhost/shop
//	weft cancel order-42 --reason "the customer called" --write --store bolt:orders.bolt
//
// It also serves a control plane over HTTP, and calls one:
//
//	weft serve --store sqlite:orders.db --keys keys.json
//	weft runs list --url https://shop.internal --key-file shop.key
//
// A store is opened for reading unless --write is given, or the verb is serve.
// docs/guides/the-command.md describes the command, docs/guides/http.md what it does over HTTP,
// and weft --help its verbs and exit codes.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weft-go/weft"
)

// command is the command line.
type command struct {
	Store   string        `env:"WEFT_STORE" placeholder:"STORE" help:"The store: sqlite:FILE, bolt:FILE or postgres://URL."`
	Table   string        `placeholder:"NAME" help:"The table or bucket of the store, if the service has chosen one: TABLE, BUCKET or SCHEMA.TABLE."`
	Write   bool          `help:"Let a verb change the store. Every verb that opens a store and changes it needs this, except serve."`
	JSON    bool          `name:"json" help:"Print JSON: an object, or for a sequence one object per line."`
	Timeout time.Duration `placeholder:"DURATION" help:"Give up after this time, such as 10s. By default verbs that change a store have 30s, and the others no limit."`

	List     list       `cmd:"" help:"List workflows, a page at a time, newest first."`
	Count    count      `cmd:"" help:"Count workflows."`
	Describe describe   `cmd:"" help:"Show the state of a workflow, its operations, signals and children."`
	Values   values     `cmd:"" help:"Show the values that a workflow has published, such as how far it is."`
	History  history    `cmd:"" help:"Show the events of a workflow, oldest first."`
	Watch    watch      `cmd:"" help:"Print the events of a workflow as they happen, until it ends. Fails unless it completes."`
	Stream   readStream `cmd:"" help:"Print the chunks of a stream of a workflow as they come, until the stream is closed or the workflow ends."`
	Export   export     `cmd:"" help:"Write the history of a workflow as a file for enginetest.Replay, which checks the workflow's code against it."`
	Engines  engines    `cmd:"" help:"List the engines that use the store, or did so lately."`
	Queues   queues     `cmd:"" help:"List the queues that are served or in use. Reads all workflows."`

	Schedules schedules `cmd:"" help:"List the schedules of the store, trigger, pause, resume or delete one."`

	Bulk bulks `cmd:"" help:"Do one operation to many workflows: start, list or stop a bulk."`

	Start  start `cmd:"" help:"Start a workflow. Prints its id."`
	Signal send  `cmd:"" help:"Send a signal to a workflow. Prints the id of the signal."`

	Cancel      cancelRun   `cmd:"" help:"Ask a workflow to stop."`
	Terminate   terminate   `cmd:"" help:"End a workflow at once, without asking it and without undoing anything."`
	Resume      resume      `cmd:"" help:"Continue a workflow that has failed, or that is held for an operator."`
	Reset       resetRun    `cmd:"" help:"Take a workflow back to before an operation of its history, from where it runs again."`
	Resolve     resolve     `cmd:"" help:"Set the outcome of an activity with an idempotency key, or of undoing a call."`
	Label       relabel     `cmd:"" help:"Change the labels of a workflow, by which weft list finds it."`
	ClearSignal clearSignal `cmd:"" help:"Remove a signal that a workflow has not received."`
	Purge       purge       `cmd:"" help:"Remove a workflow that has ended, with its history."`
	Protect     protect     `cmd:"" help:"Keep a workflow from being removed, by whomever."`
	Unprotect   unprotect   `cmd:"" help:"Let a workflow that is protected be removed again."`
	Delete      deleteRun   `cmd:"" help:"Remove a workflow at once, with its history. One that has not ended is terminated first."`

	Serve             serve             `cmd:"" help:"Serve a control plane for the store over HTTP, until it is told to stop."`
	Runs              runs              `cmd:"" help:"Act on runs over a control plane."`
	Bulks             remoteBulks       `cmd:"" help:"Do one operation to many runs over a control plane: start, list, get or stop a bulk."`
	Signals           signals           `cmd:"" help:"Send signals to runs over a control plane, and look at them."`
	Hooks             hooks             `cmd:"" help:"Resume a hook: over --url, or with --write in a --store."`
	Deployments       deployments       `cmd:"" help:"Record and activate deployments over a control plane."`
	Keys              keys              `cmd:"" help:"Make, list, rotate and revoke keys of a control plane: over --url, or with --write in a --store."`
	Audit             audit             `cmd:"" help:"List what was done over a control plane, newest first."`
	ValidateOwnership validateOwnership `cmd:"" help:"Ask a control plane whether requests came that another world should have got. Exit codes: 0 pass, 1 failure, and with --strict 2 for warnings."`

	Completion completion `cmd:"" help:"Print a script that completes this command in a shell."`
}

const description = `Weft looks into a store of durable workflows and acts on them. It also serves a store over HTTP (serve), and calls such a server (runs, bulks, signals, hooks, deployments, keys, audit, validate-ownership), which needs --url and a key, and no --store or --write. With --write, hooks and keys can act on a --store instead.

The store is opened for reading, unless --write is given or the verb is serve. SQLite can be read while a service has it open, and written if the service opened it with Shared. bbolt admits one process: stop the service first. PostgreSQL can always be read and written.

Times are UTC. An id that contains spaces, control characters or the like is printed quoted for a shell. Write -- before an id that begins with a hyphen.

Exit codes: 0 done, 1 failed, 2 the command line is wrong and nothing was done. validate-ownership --strict also has 2 for warnings.`

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	exitWarned = 2 // of validate-ownership --strict
)

// An exitCode ends the command without a message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// A usageError is a mistake in the command line. Nothing was written.
type usageError struct{ error }

func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// An env is what a verb works with.
type env struct {
	command
	context.Context
	group string // of the verb, such as bulk; weft: it is in none
	verb  string
	model *kong.Application
	in    io.Reader
	out   *bufio.Writer // flushed when the verb has returned
	notes io.Writer     // for what is not part of the output
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	e := &env{in: os.Stdin, out: bufio.NewWriter(os.Stdout), notes: os.Stderr}
	parser, err := kong.New(&e.command,
		kong.Name("weft"),
		kong.Description(description),
		kong.Vars{"user": userName(), "demo": demoDeployment},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return e.exit(err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if args[0] == "serve" {
		args = twoHyphens(args)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return e.exit(misuse("%w: see %s --help", err, verbOf(err)))
	}
	e.group, e.verb, e.model = parsed.Selected().Parent.Name, parsed.Selected().Name, parser.Model
	e.Context = ctx
	if e.Timeout < 0 {
		return e.exit(misuse("the timeout %v is negative", e.Timeout))
	}
	if e.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, e.Timeout)
		defer cancel()
		e.Context = limited
	}
	err = parsed.Run(e)
	if flushed := e.out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("write the output: %w", flushed)
	}
	return e.exit(err)
}

// twoHyphens returns args with two hyphens before flags that were given with one, as those of Go
// programs are. No flag has a name of one letter but -h.
func twoHyphens(args []string) []string {
	var all []string
	for i, a := range args {
		if a == "--" {
			return append(all, args[i:]...)
		}
		if len(a) > 2 && a[0] == '-' && a[1] != '-' {
			a = "-" + a
		}
		all = append(all, a)
	}
	return all
}

// verbOf returns the command whose arguments err is about.
func verbOf(err error) string {
	wrong, ok := errors.AsType[*kong.ParseError](err)
	if !ok || wrong.Context == nil || wrong.Context.Selected() == nil {
		return "weft"
	}
	return wrong.Context.Selected().FullPath()
}

// note prints what is not part of the output.
func (e *env) note(format string, args ...any) { fmt.Fprintf(e.notes, "weft: "+format+"\n", args...) }

// exit prints err and returns the exit code for it.
func (e *env) exit(err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	fmt.Fprintf(e.notes, "weft: %s\n", explained(e.group, e.verb, err))
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, weft.ErrInvalid) {
		return exitUsage
	}
	return exitFailed
}

// userName returns the name of the user of the operating system.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return os.Getenv("USER")
}
