package apitest

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-go/weft/control/wire"
)

// The commands of the specification: weft serve, and curl. What the process answers is compared with the
// document on its way.
func TestServe(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	run(t, "../..", nil, "go", "build", "-o", folder+"/", "./cmd/weft")
	keys := filepath.Join(folder, "keys.json")
	if err := os.WriteFile(keys, []byte(`[{"id":"shop","secret":"`+admin+`","scopes":["trigger:write","runs:read","runs:write"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join(folder, "weft"), "serve", "-store", "sqlite:weft.db", "-demo", "-keys", keys, "-listen", "127.0.0.1:0")
	c.Dir = folder
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil && !strings.Contains(err.Error(), "terminated") {
			t.Errorf("weft serve: %v", err)
		}
	}
	t.Cleanup(stop)
	lines := bufio.NewScanner(out)
	var address []string
	for address == nil && lines.Scan() {
		address = regexp.MustCompile(`^weft serves (http://\S+) on `).FindStringSubmatch(lines.Text())
	}
	if address == nil {
		t.Fatal("weft serve does not say where")
	}
	u, err := url.Parse(address[1])
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	web := httptest.NewServer(&recorder{t: t, document: loadDocument(t), next: proxy})
	t.Cleanup(web.Close)
	s := &server{t: t, url: web.URL}
	first := shell(t, s, `curl -sS -H "$AUTH" -H 'Idempotency-Key: order-42' -H 'Content-Type: application/json' \
		-d '{"workflowName":"checkout","input":{"cents":4900}}' $URL/v1/runs`)
	created := decode[wire.RunCreated](t, reply{body: []byte(first)})
	if created.Status != "pending" || created.DeploymentID == "" {
		t.Errorf("created %s", first)
	}
	result := decode[wire.RunResult](t, reply{body: []byte(shell(t, s, "RUN="+created.RunID+`
		curl -sS -H "$AUTH" "$URL/v1/runs/$RUN/result?wait=30"`))})
	if result.Status != "completed" || !strings.Contains(string(result.Result), "4900") {
		t.Errorf("the result is %+v", result)
	}
}
