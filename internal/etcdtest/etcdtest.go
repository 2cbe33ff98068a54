// Package etcdtest starts etcd clusters for tests: real processes, which are built from the module
// storage/etcd/testdata/server. Members and clients reach each other through proxies, which can part
// members and cut connections. A member stops with the process that started it, even if that
// process is killed.
package etcdtest

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/freeport"
)

// Options configure a cluster. The zero value is a cluster of one member.
type Options struct {
	Members int
	Flags   []string // of every member
	Sync    bool     // sync to disk, which a test that kills processes does not need
	Direct  bool     // without proxies, to measure
	TLS     *TLS     // for clients
	// Election is how long members hear nothing of their leader before they elect another. The default is 5 s: a busy machine
	// must not take the leader from tests in which nothing is to fail. Fast is for the others.
	Election time.Duration
}

// Fast is an Options.Election for tests in which a member is to fail.
const Fast = 500 * time.Millisecond

// TLS is the files of a certificate of the members, and a pool that has it.
type TLS struct {
	Cert, Key string
	Pool      *x509.CertPool
}

// scheme begins the addresses for clients.
func (o *Options) scheme() string {
	if o.TLS != nil {
		return "https://"
	}
	return "http://"
}

// http is a client for what etcdtest asks the members. It gives a call up after limit.
func (o *Options) http(limit time.Duration) *http.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	if o.TLS != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: o.TLS.Pool}
	}
	return &http.Client{Timeout: limit, Transport: transport}
}

// A Cluster is members in a temporary directory.
type Cluster struct {
	Members []*Member
	dir     string
	program string
	options Options
	orders  chan func()
}

// A Member is one etcd server.
type Member struct {
	Name    string
	Client  *Proxy // between clients and the member
	Peer    *Proxy // between the other members and this
	Address string // for clients, without the proxy

	cluster *Cluster
	peer    string // the address at which it listens for others
	id      string // by which the others know it
	learner bool   // it has joined a cluster that was there
	cmd     *exec.Cmd
	exited  chan struct{}
	log     bytes.Buffer
}

// Start starts a cluster for this test, which stops at its end.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("-short starts no etcd server")
	}
	c, stop, err := Launch(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return c
}

// Launch starts a cluster outside of a test. stop stops it and removes its files.
func Launch(o Options) (c *Cluster, stop func(), err error) {
	if c, err = launch(o); err != nil {
		return nil, nil, fmt.Errorf("etcdtest: start: %w", err)
	}
	return c, c.stop, nil
}

func launch(o Options) (_ *Cluster, err error) {
	o.Members = max(1, o.Members)
	c := &Cluster{options: o, orders: make(chan func())}
	if c.program, err = build(); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "etcdtest"); err != nil {
		return nil, err
	}
	go c.obey()
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	for range o.Members {
		if err := c.add(); err != nil {
			return nil, err
		}
	}
	for _, m := range c.Members {
		if err := m.run(); err != nil {
			return nil, err
		}
	}
	for _, m := range c.Members {
		if err := m.Ready(); err != nil {
			return nil, err
		}
	}
	return c, c.identify()
}

// add adds a member that is not started.
func (c *Cluster) add() (err error) {
	m := &Member{Name: fmt.Sprint("m", len(c.Members)+1), cluster: c}
	c.Members = append(c.Members, m)
	if m.Address, err = free(); err != nil {
		return err
	}
	if m.peer, err = free(); err != nil || c.options.Direct {
		return err
	}
	if m.Client, err = newProxy(m.Address); err != nil {
		return err
	}
	m.Peer, err = newProxy(m.peer)
	return err
}

// AddLearner adds a member that has no vote, and waits until it answers.
func (c *Cluster) AddLearner() (*Member, error) {
	if err := c.add(); err != nil {
		return nil, err
	}
	m := c.Members[len(c.Members)-1]
	m.learner = true
	body := fmt.Sprintf(`{"peerURLs":["http://%s"],"isLearner":true}`, m.forOthers())
	answer, err := c.options.http(patience).Post(c.options.scheme()+c.Members[0].Address+"/v3/cluster/member/add", "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("add a learner: %s", answer.Status)
	}
	if err := m.run(); err != nil {
		return nil, err
	}
	client := c.options.http(time.Second)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var status struct{ IsLearner bool }
		if m.ask(client, "/v3/maintenance/status", &status) == nil && status.IsLearner {
			return m, nil
		}
	}
	m.Kill()
	return nil, fmt.Errorf("the learner does not answer\n%s", m.log.String())
}

// identify asks for the IDs of the members.
func (c *Cluster) identify() error {
	var list struct {
		Members []struct {
			ID    uint64   `json:",string"`
			Peers []string `json:"peerURLs"`
		}
	}
	if err := c.Members[0].ask(c.options.http(patience), "/v3/cluster/member/list", &list); err != nil {
		return err
	}
	for _, m := range c.Members {
		for _, known := range list.Members {
			if slices.Contains(known.Peers, "http://"+m.forOthers()) {
				m.id = strconv.FormatUint(known.ID, 16)
			}
		}
		if m.id == "" {
			return fmt.Errorf("the cluster does not know %s", m.Name)
		}
	}
	return nil
}

var built struct {
	sync.Mutex
	path string
}

// build returns the path of the server. WEFT_ETCD names one that is there; otherwise it is built.
func build() (string, error) {
	if path := os.Getenv("WEFT_ETCD"); path != "" {
		return path, nil
	}
	built.Lock()
	defer built.Unlock()
	if built.path != "" {
		return built.path, nil
	}
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..")
	if !filepath.IsAbs(root) { // built with -trimpath
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/weft-go/weft").Output()
		if err != nil {
			return "", fmt.Errorf("find the module: %w", err)
		}
		root = strings.TrimSpace(string(out))
	}
	module := filepath.Join(root, "storage", "etcd", "testdata", "server")
	// The go command keeps the program that it has built, and prints where.
	cmd := exec.Command("go", "tool", "-n", "github.com/weft-go/weft/storage/etcd/testdata/server")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the server in %s: %w\n%s", module, err, &problems)
	}
	built.path = strings.TrimSpace(string(out))
	return built.path, nil
}

func free() (string, error) {
	port, err := freeport.Find()
	return freeport.Address(port), err
}

// obey runs orders on one OS thread, because a member is killed when the thread that started it
// ends.
func (c *Cluster) obey() {
	runtime.LockOSThread()
	for order := range c.orders {
		order()
	}
}

func (c *Cluster) stop() {
	for _, m := range c.Members {
		m.Kill()
		for _, p := range []*Proxy{m.Client, m.Peer} {
			if p != nil {
				p.close()
			}
		}
	}
	close(c.orders)
	os.RemoveAll(c.dir)
}

// Endpoints returns the addresses of the members for clients.
func (c *Cluster) Endpoints() (all []string) {
	for _, m := range c.Members {
		all = append(all, c.options.scheme()+m.forClients())
	}
	return all
}

// Part cuts m off from the other members, in both directions. Clients still reach it.
func (c *Cluster) Part(m *Member) {
	for _, other := range c.Members {
		if other == m {
			other.Peer.Allow(func(string) bool { return false })
		} else {
			other.Peer.Allow(func(from string) bool { return from != m.id })
		}
	}
}

// Heal ends what Part began.
func (c *Cluster) Heal() {
	for _, m := range c.Members {
		m.Peer.Allow(nil)
	}
}

// forClients returns the address that clients use.
func (m *Member) forClients() string {
	if m.Client == nil {
		return m.Address
	}
	return m.Client.Addr()
}

// forOthers returns the address that the other members use.
func (m *Member) forOthers() string {
	if m.Peer == nil {
		return m.peer
	}
	return m.Peer.Addr()
}

func (m *Member) args() []string {
	var cluster []string
	for _, other := range m.cluster.Members {
		cluster = append(cluster, other.Name+"=http://"+other.forOthers())
	}
	state := "new"
	if m.learner {
		state = "existing"
	}
	args := []string{
		"--name", m.Name,
		"--data-dir", filepath.Join(m.cluster.dir, m.Name),
		"--listen-client-urls", m.cluster.options.scheme() + m.Address,
		"--advertise-client-urls", m.cluster.options.scheme() + m.forClients(),
		"--listen-peer-urls", "http://" + m.peer,
		"--initial-advertise-peer-urls", "http://" + m.forOthers(),
		"--initial-cluster", strings.Join(cluster, ","),
		"--initial-cluster-state", state,
		"--heartbeat-interval", "50",
		"--election-timeout", strconv.FormatInt(cmp.Or(m.cluster.options.Election, 5*time.Second).Milliseconds(), 10),
		"--log-level", "error",
	}
	if !m.cluster.options.Sync {
		args = append(args, "--unsafe-no-fsync")
	}
	if t := m.cluster.options.TLS; t != nil {
		args = append(args, "--cert-file", t.Cert, "--key-file", t.Key)
	}
	return append(args, m.cluster.options.Flags...)
}

func (m *Member) run() error {
	m.cmd = exec.Command(m.cluster.program, m.args()...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	m.cluster.orders <- func() { started <- m.cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	cmd, exited := m.cmd, make(chan struct{})
	m.exited = exited
	go func() {
		cmd.Wait()
		close(exited)
	}()
	return nil
}

// patience is how long a member may take to answer.
const patience = time.Minute

// Leader returns the member that most recently became the leader, as far as the members know.
func (c *Cluster) Leader() (*Member, error) {
	client := c.options.http(time.Second)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var leader, term uint64
		for _, m := range c.Members {
			var status struct {
				Leader uint64 `json:",string"`
				Term   uint64 `json:"raftTerm,string"`
			}
			if m.ask(client, "/v3/maintenance/status", &status) == nil && status.Term > term {
				leader, term = status.Leader, status.Term
			}
		}
		for _, m := range c.Members {
			if m.id == strconv.FormatUint(leader, 16) {
				return m, nil
			}
		}
	}
	return nil, errors.New("etcdtest: the cluster has no leader")
}

// ask makes a call without arguments.
func (m *Member) ask(client *http.Client, call string, answer any) error {
	got, err := client.Post(m.cluster.options.scheme()+m.Address+call, "application/json", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	defer got.Body.Close()
	return json.NewDecoder(got.Body).Decode(answer)
}

// Ready waits until the member answers and has a leader.
func (m *Member) Ready() error {
	client := m.cluster.options.http(time.Second)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if answer, err := client.Get(m.cluster.options.scheme() + m.Address + "/health"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-m.exited:
			return fmt.Errorf("%s exited\n%s", m.Name, m.log.String())
		default:
		}
	}
	m.Kill()
	return fmt.Errorf("%s does not answer\n%s", m.Name, m.log.String())
}

// Kill kills the member. What the operating system has of its files is kept.
func (m *Member) Kill() {
	if m.cmd == nil || m.cmd.Process == nil {
		return
	}
	m.cmd.Process.Kill()
	<-m.exited
}

// Restart starts a killed member again. It does not wait for it.
func (m *Member) Restart() error { return m.run() }

// Stop stops the process with SIGSTOP.
func (m *Member) Stop() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue ends what Stop began.
func (m *Member) Continue() error { return m.cmd.Process.Signal(syscall.SIGCONT) }

// PID returns the process of the member.
func (m *Member) PID() string { return strconv.Itoa(m.cmd.Process.Pid) }
