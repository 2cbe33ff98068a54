package weftvet

import (
	"go/types"
	"strings"
)

// What is wrong with a use of the standard library, by code.
const (
	whyClock    = "a replay gets another time; use "
	whyChance   = "a replay gets another value; use run.Random, or a step for a secret"
	whyConc     = "the engine does not know that the run waits, and a replay takes another order; use "
	whyWorld    = "a replay does it again and may get another answer; do it in an activity or an engine.Step"
	whyEnv      = "it may differ where the run is replayed; read it in an engine.Step, or before the engine starts"
	whyZone     = "each machine has a time zone of its own; use UTC, or a zone with a name"
	whyShared   = "all runs and replays take numbers from it, each gets others; use run.Random"
	whyStore    = "it acts beside the history, and a replay does it again; use Workflow.Do or Detach and Signal.SendFrom, or do it in an activity"
	useBranches = "engine.Go, engine.All or engine.Map"
)

type rule struct {
	code code
	why  string
}

// known has the functions, methods and variables that workflow code may not use, by the path of the
// package and the name: "Now", or "DB.Query" for a method. "*" is every function, and "DB.*"
// every method of a type.
var known = map[string]map[string]rule{}

func forbid(code code, why, path, names string) {
	if known[path] == nil {
		known[path] = map[string]rule{}
	}
	for name := range strings.FieldsSeq(names) {
		known[path][name] = rule{code, why}
	}
}

func init() {
	forbid(1, whyClock+"run.Now", "time", "Now")
	forbid(1, whyClock+"run.Now().Sub", "time", "Since")
	forbid(1, whyClock+"the difference to run.Now", "time", "Until")
	forbid(1, whyClock+"run.Sleep", "time", "Sleep")
	forbid(1, whyClock+"run.After", "time", "After AfterFunc Tick NewTimer NewTicker Timer.Reset Timer.Stop Ticker.Reset")
	forbid(1, whyClock+"run.WithTimeout", "context", "WithTimeout WithDeadline WithTimeoutCause WithDeadlineCause")

	// A generator with a seed repeats its numbers. If it is a package variable, see isGenerator.
	for _, path := range []string{"math/rand", "math/rand/v2"} {
		forbid(2, whyChance, path, "*")
	}
	forbid(2, whyChance, "crypto/rand", "*")
	forbid(2, whyChance, "crypto/rand", "Reader")
	for _, path := range []string{"crypto/dsa", "crypto/ecdsa", "crypto/ed25519", "crypto/elliptic", "crypto/rsa"} {
		forbid(2, whyChance, path, "GenerateKey")
	}
	forbid(2, whyChance, "crypto/ecdh", "Curve.GenerateKey")
	forbid(2, whyChance, "crypto/mlkem", "GenerateKey768 GenerateKey1024")
	forbid(2, whyChance, "hash/maphash", "MakeSeed Bytes String Comparable Hash.*")
	forbid(2, whyChance, "github.com/google/uuid", "New NewString NewRandom NewUUID NewV6 NewV7 NewDCEGroup NewDCEPerson NewDCESecurity")
	for _, path := range []string{"github.com/gofrs/uuid", "github.com/gofrs/uuid/v5"} {
		forbid(2, whyChance, path, "NewV1 NewV4 NewV6 NewV7")
	}
	forbid(2, whyChance, "github.com/oklog/ulid/v2", "Make DefaultEntropy Now")
	forbid(2, whyChance, "github.com/rs/xid", "New NewWithTime")
	forbid(2, whyChance, "github.com/segmentio/ksuid", "New NewRandom")

	forbid(3, whyConc+useBranches, "sync",
		"Mutex.Lock Mutex.TryLock RWMutex.Lock RWMutex.RLock RWMutex.TryLock RWMutex.TryRLock WaitGroup.Wait WaitGroup.Go Cond.Wait Locker.Lock")
	forbid(3, whyConc+useBranches, "golang.org/x/sync/errgroup", "Group.Go Group.TryGo Group.Wait")
	forbid(3, whyConc+useBranches, "golang.org/x/sync/semaphore", "Weighted.Acquire Weighted.TryAcquire")
	forbid(3, whyConc+useBranches, "context", "AfterFunc")
	forbid(3, whyConc+useBranches, "runtime", "Gosched")

	forbid(5, whyWorld, "net", `Dial DialTimeout DialIP DialTCP DialUDP DialUnix Listen ListenIP ListenMulticastUDP ListenPacket
		ListenTCP ListenUDP ListenUnix ListenUnixgram FileConn FileListener FilePacketConn LookupAddr LookupCNAME LookupHost LookupIP
		LookupMX LookupNS LookupPort LookupSRV LookupTXT ResolveIPAddr ResolveTCPAddr ResolveUDPAddr Interfaces InterfaceAddrs
		InterfaceByIndex InterfaceByName Dialer.* ListenConfig.* Resolver.* Conn.* Listener.* PacketConn.* TCPConn.* UDPConn.* UnixConn.* IPConn.* TCPListener.* UnixListener.*`)
	forbid(5, whyWorld, "net/http", `Get Head Post PostForm ListenAndServe ListenAndServeTLS Serve ServeTLS ReadRequest ReadResponse
		Client.* Transport.* RoundTripper.RoundTrip Server.*`)
	forbid(5, whyWorld, "net/smtp", "Dial SendMail Client.*")
	forbid(5, whyWorld, "net/textproto", "Dial")
	forbid(5, whyWorld, "log/syslog", "Dial New NewLogger Writer.*")
	forbid(5, whyWorld, "net/rpc", "Dial DialHTTP DialHTTPPath Client.* Server.*")
	forbid(5, whyWorld, "crypto/tls", "Dial DialWithDialer Listen LoadX509KeyPair Dialer.* Conn.*")
	forbid(5, whyWorld, "os", `Chdir Chmod Chown Chtimes CopyFS Create CreateTemp DirFS Getwd Lchown Link Lstat Mkdir MkdirAll MkdirTemp
		NewFile Open OpenFile OpenInRoot OpenRoot Pipe ReadDir ReadFile Readlink Remove RemoveAll Rename SameFile Stat Symlink
		Truncate WriteFile Exit FindProcess StartProcess Stdin File.* Root.* Process.*`)
	forbid(5, whyEnv, "os", `Args Getenv LookupEnv Environ Setenv Unsetenv Clearenv ExpandEnv Executable Getpid Getppid Getuid Geteuid
		Getgid Getegid Getgroups Getpagesize Hostname TempDir UserCacheDir UserConfigDir UserHomeDir`)
	forbid(5, whyWorld, "io/ioutil", "ReadDir ReadFile TempDir TempFile WriteFile")
	forbid(5, whyWorld, "archive/zip", "OpenReader")
	for _, path := range []string{"text/template", "html/template"} {
		forbid(5, whyWorld, path, "ParseFiles ParseGlob Template.ParseFiles Template.ParseGlob")
	}
	forbid(5, whyWorld, "path/filepath", "Abs EvalSymlinks Glob Walk WalkDir")
	forbid(5, whyWorld, "os/exec", "Command CommandContext LookPath Cmd.*")
	forbid(5, whyWorld, "log", "Fatal Fatalf Fatalln Logger.Fatal Logger.Fatalf Logger.Fatalln")
	forbid(5, whyZone, "time", "Local Time.Local")
	forbid(5, whyEnv, "os/user", "*")
	forbid(5, whyWorld, "os/signal", "*")
	forbid(5, whyWorld, "syscall", "*")
	forbid(5, whyWorld, "plugin", "*")
	forbid(5, whyWorld, "fmt", "Scan Scanf Scanln")
	forbid(5, whyEnv, "runtime", "NumCPU GOMAXPROCS NumGoroutine ReadMemStats Version")
	forbid(5, whyWorld, "database/sql", "Open OpenDB DB.* Conn.* Tx.* Stmt.* Row.* Rows.*")
	forbid(5, whyWorld, "github.com/jackc/pgx/v5", "Connect ConnectConfig Conn.* Tx.* Row.* Rows.*")
	forbid(5, whyWorld, "github.com/jackc/pgx/v5/pgxpool", "New NewWithConfig Pool.* Conn.* Tx.*")
}

// harmless are exceptions to a "*".
var harmless = map[string]map[string]bool{
	"math/rand":    {"New": true, "NewSource": true, "NewZipf": true},
	"math/rand/v2": {"New": true, "NewPCG": true, "NewChaCha8": true, "NewZipf": true},
	"hash/maphash": {"Hash.SetSeed": true, "Hash.Seed": true, "Hash.Reset": true},
	"net/http":     {"Server.RegisterOnShutdown": true, "Server.SetKeepAlivesEnabled": true},
	"os":           {"File.Name": true, "File.Fd": true, "Root.Name": true},
	"os/exec":      {"Cmd.String": true},
	"syscall":      {"Errno.Error": true, "Errno.Is": true, "Signal.String": true},
	"database/sql": {"DB.Stats": true, "Rows.Err": true, "Row.Err": true},
	"crypto/tls":   {"Conn.ConnectionState": true},
	"net":          {"TCPConn.LocalAddr": true, "Conn.LocalAddr": true, "Conn.RemoteAddr": true},
}

// ruleOf returns the rule against a use of o, and how o is called in a message.
func ruleOf(o types.Object) (r rule, name string, ok bool) {
	if o.Pkg() == nil {
		return rule{}, "", false
	}
	path := o.Pkg().Path()
	rules := known[path]
	if rules == nil {
		return rule{}, "", false
	}
	local, wild := o.Name(), "*"
	if f, isFunc := o.(*types.Func); isFunc {
		if recv := receiver(f); recv != "" {
			local, wild = recv+"."+local, recv+".*"
		}
	} else if v, isVar := o.(*types.Var); !isVar || !packageLevel(v) {
		return rule{}, "", false
	} else {
		wild = local
	}
	if harmless[path][local] {
		return rule{}, "", false
	}
	if r, ok = rules[local]; !ok {
		r, ok = rules[wild]
	}
	return r, o.Pkg().Name() + "." + local, ok
}

// isGenerator says that t is a generator of random numbers, or a source of one.
func isGenerator(t types.Type) bool {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	_, path, _ := named(t)
	return path == "math/rand" || path == "math/rand/v2"
}

// receiver is the name of the type whose method f is, or "".
func receiver(f *types.Func) string {
	recv := f.Signature().Recv()
	if recv == nil {
		return ""
	}
	t := recv.Type()
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// nameOf is how a function of the user is called in a message.
func nameOf(f *types.Func, from *types.Package) string {
	name := f.Name()
	if recv := receiver(f); recv != "" {
		name = recv + "." + name
	}
	if f.Pkg() != nil && f.Pkg() != from {
		name = f.Pkg().Name() + "." + name
	}
	return name
}
