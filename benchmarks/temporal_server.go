//go:build temporal

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	schema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"

	"github.com/weft-go/weft/internal/freeport"
)

const (
	temporalNamespace = "default"
	temporalQueue     = "bench"
	temporalHost      = "127.0.0.1"
)

// A temporalSystem is a server and a worker.
type temporalSystem struct {
	server temporal.Server
	client client.Client
	worker worker.Worker
}

func openTemporal(ctx context.Context, s Site) (System, error) {
	server, address, err := temporalServer(filepath.Join(s.Dir, "temporal.db"))
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	t := &temporalSystem{server: server}
	quiet := sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	for began := time.Now(); ; {
		t.client, err = client.DialContext(ctx, client.Options{HostPort: address, Namespace: temporalNamespace, Logger: quiet})
		if err == nil {
			break
		}
		if time.Since(began) > 30*time.Second || ctx.Err() != nil {
			return nil, errors.Join(err, server.Stop())
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.worker = worker.New(t.client, temporalQueue, worker.Options{
		MaxConcurrentWorkflowTaskPollers: 8, // 2 by default
		MaxConcurrentActivityTaskPollers: 8,
	})
	t.register(s.Probe)
	if err := t.worker.Start(); err != nil {
		t.client.Close()
		return nil, errors.Join(err, server.Stop())
	}
	return t, nil
}

func (t *temporalSystem) register(p *Probe) {
	t.worker.RegisterActivityWithOptions(func(context.Context, int) (string, error) {
		p.Step()
		return "done", nil
	}, activity.RegisterOptions{Name: "noop"})
	t.worker.RegisterWorkflowWithOptions(func(ctx workflow.Context, s Shape) (out string, err error) {
		p.Enter()
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		for i := range s.Steps {
			if err := workflow.ExecuteActivity(ctx, "noop", i).Get(ctx, &out); err != nil {
				return "", err
			}
		}
		var begun []workflow.Future
		for i := range s.Parallel {
			begun = append(begun, workflow.ExecuteActivity(ctx, "noop", i))
		}
		for _, f := range begun {
			if err := f.Get(ctx, &out); err != nil {
				return "", err
			}
		}
		if s.Signal {
			p.Park()
			workflow.GetSignalChannel(ctx, "go ahead").Receive(ctx, &out)
		}
		return out, nil
	}, workflow.RegisterOptions{Name: "shaped"})
}

func (t *temporalSystem) Close() error {
	t.worker.Stop()
	t.client.Close()
	return t.server.Stop()
}

func (t *temporalSystem) Start(ctx context.Context, id string, s Shape) error {
	_, err := t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: temporalQueue}, "shaped", s)
	return err
}

func (t *temporalSystem) Signal(ctx context.Context, id string) error {
	return t.client.SignalWorkflow(ctx, id, "", "go ahead", "done")
}

func (t *temporalSystem) Wait(ctx context.Context, id string) error {
	var out string
	err := t.client.GetWorkflow(ctx, id, "").Get(ctx, &out)
	if err == nil && out != "done" {
		err = fmt.Errorf("temporal: result of %q is %q", id, out)
	}
	return err
}

// temporalServer is a server as its development server sets it up, on a file
// with synchronous=FULL.
func temporalServer(file string) (temporal.Server, string, error) {
	sql := &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      file,
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "2"},
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if err := schema.SetupSchema(sql); err != nil {
			return nil, "", err
		}
	}
	const name = "active"
	namespace, err := schema.NewNamespaceConfig(name, temporalNamespace, false, nil)
	if err != nil {
		return nil, "", err
	}
	if err := schema.CreateNamespaces(sql, namespace); err != nil {
		return nil, "", err
	}
	services, port, err := temporalServices(filepath.Dir(file))
	if err != nil {
		return nil, "", err
	}
	address := fmt.Sprintf("%s:%d", temporalHost, port)
	c := &config.Config{
		Global: config.Global{Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: temporalHost}},
		Persistence: config.Persistence{
			DefaultStore:     sqliteplugin.PluginName,
			VisibilityStore:  sqliteplugin.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqliteplugin.PluginName: {SQL: sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        name,
			CurrentClusterName:       name,
			ClusterInformation:       map[string]cluster.ClusterInformation{name: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival:            config.Archival{History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"}},
		PublicClient:        config.PublicClient{HostPort: address},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(c),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithLogger(log.NewNoopLogger()),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
			dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
			// One task queue on one machine has no use for partitions, of which
			// it has four, nor for the limits of a namespace.
			dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
			dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
			dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key():  1_000_000,
			dynamicconfig.FrontendRPS.Key():                         1_000_000,
		}),
	)
	return server, address, err
}

// temporalServices are the parts of a server, at the ports that they have had on
// this database: as a server has them that is installed. With others it would
// look for those of before a long time.
func temporalServices(dir string) (services map[string]config.Service, front int, err error) {
	file := filepath.Join(dir, "services.json")
	if data, err := os.ReadFile(file); err == nil {
		err = json.Unmarshal(data, &services)
		return services, services["frontend"].RPC.GRPCPort, err
	}
	services = map[string]config.Service{}
	for _, name := range []string{"frontend", "history", "matching", "worker"} {
		var rpc config.RPC
		rpc.BindOnLocalHost = true
		if rpc.GRPCPort, err = freeport.Find(); err == nil {
			rpc.MembershipPort, err = freeport.Find()
		}
		if err != nil {
			return nil, 0, err
		}
		services[name] = config.Service{RPC: rpc}
	}
	data, err := json.Marshal(services)
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	return services, services["frontend"].RPC.GRPCPort, err
}
