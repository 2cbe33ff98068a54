package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/weft-go/weft/internal/freeport"
)

// A server is the program of examples/chat, which is killed and started again at one address.
type server struct {
	t       *testing.T
	program string
	db      string
	address string
	cmd     *exec.Cmd
}

func newServer(t *testing.T) *server {
	dir := t.TempDir()
	s := &server{t: t, program: filepath.Join(dir, "chat"), db: filepath.Join(dir, "chat.db")}
	build := exec.Command("go", "build", "-o", s.program, "./examples/chat")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	s.address = freeport.Address(port)
	t.Cleanup(func() { s.kill() })
	return s
}

// start starts the program, whose model says a word each pause.
func (s *server) start(pause time.Duration) {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "-db", s.db, "-address", s.address, "-pause", pause.String())
	s.cmd.Stderr = s.t.Output()
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "http://"+s.address {
		s.t.Fatalf("the program has printed %q, %v", line, err)
	}
}

// kill ends the process with SIGKILL.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// newTab starts a browser with nothing in it, and returns the context of its tab.
func newTab(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: install it, such as by: apt-get install -y --no-install-recommends chromium", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(2*time.Minute),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// spy notes the events of each EventSource, and how the page began.
const spy = `
	const note = what => sessionStorage.setItem("spy", (sessionStorage.getItem("spy") ?? "") + JSON.stringify(what) + "\n");
	note({ loaded: location.pathname });
	window.EventSource = class extends EventSource {
		constructor(url) {
			super(url);
			this.addEventListener("message", e => note({ id: e.lastEventId, ...JSON.parse(e.data) }));
		}
	};`

// A noted is what spy has noted: that a page was loaded, or an event.
type noted struct {
	Loaded  string
	ID      string
	Word    string
	Attempt int
}

// A view is what the page shows, and what spy has noted.
type view struct {
	Answer string `json:"answer"`
	State  string `json:"state"`
	Spy    string `json:"spy"`
}

func (v *view) words() int { return len(strings.Fields(v.Answer)) }

func look(t *testing.T, tab context.Context) view {
	t.Helper()
	v, err := chromedp.Run(tab, chromedp.Evaluate[view](`({
		answer: document.querySelector("#answer")?.textContent ?? "",
		state: document.querySelector("#state")?.textContent ?? "",
		spy: sessionStorage.getItem("spy") ?? "",
	})`))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// until waits until the page shows something.
func until(t *testing.T, tab context.Context, what string, ok func(v *view) bool) view {
	t.Helper()
	var v view
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if v = look(t, tab); ok(&v) {
			return v
		}
	}
	t.Fatalf("in vain: %s; the page shows %+v", what, v)
	return v
}

// A page shows each word of an answer once and in order, although the process that asks the model and sends the words is killed
// twice in the middle, and the page is reloaded in the middle.
func TestEachWordIsShownOnce(t *testing.T) {
	const slow, fast = 150 * time.Millisecond, 30 * time.Millisecond // an answer that is cut must last for longer than a page needs
	s := newServer(t)
	s.start(slow)
	tab := newTab(t)
	if _, err := chromedp.Call(tab, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: spy}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(tab, chromedp.Navigate("http://"+s.address+"/"), chromedp.SendKeys("input[name=question]", "why?\r")); err != nil {
		t.Fatal(err)
	}
	some := func(v *view) bool { return v.words() >= 20 }
	until(t, tab, "words of the first attempt", some)
	s.kill()
	killed := until(t, tab, "the page has noticed that the program is gone", func(v *view) bool { return strings.HasPrefix(v.State, "Connecting") })
	s.start(slow)
	until(t, tab, "words of the second attempt", func(v *view) bool { return strings.Contains(v.Spy, `"attempt":2`) && some(v) })
	if err := chromedp.Do(tab, chromedp.Reload()); err != nil {
		t.Fatal(err)
	}
	until(t, tab, "words after a reload", func(v *view) bool { return v.words() >= 30 })
	s.kill()
	s.start(fast)
	until(t, tab, "words of the third attempt", func(v *view) bool { return strings.Contains(v.Spy, `"attempt":3`) })
	last := until(t, tab, "the end", func(v *view) bool { return v.State == "That is all." })

	path, err := chromedp.Run(tab, chromedp.Evaluate[string](`location.pathname`))
	if err != nil {
		t.Fatal(err)
	}
	stored := storedWords(t, "http://"+s.address+path+"/words")
	var whole []string
	for _, w := range stored {
		if w.Attempt == stored[len(stored)-1].Attempt {
			whole = append(whole, w.Word)
		}
	}
	if last.Answer != strings.Join(whole, " ") || whole[0] != "You" || whole[len(whole)-1] != "see." {
		t.Errorf("the page shows %q, want %q", last.Answer, whole)
	}
	if killed.words() == 0 || killed.words() >= len(whole) {
		t.Errorf("the program was not killed in the middle: the page had %d words of %d", killed.words(), len(whole))
	}
	checkEvents(t, last.Spy, path, stored)
}

// checkEvents checks that the page has got each stored word once and in order, the second time that it was loaded
// not from the beginning.
func checkEvents(t *testing.T, spy, path string, stored []noted) {
	t.Helper()
	var got []noted
	loads := []int{} // how many events there were before
	for line := range strings.Lines(spy) {
		var n noted
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Fatal(err)
		}
		switch n.Loaded {
		case "":
			got = append(got, n)
		case path:
			loads = append(loads, len(got))
		}
	}
	if !slices.Equal(got, stored) {
		t.Errorf("the page has got\n%v\nwant\n%v", got, stored)
	}
	if len(loads) != 2 || loads[0] != 0 || loads[1] == 0 || loads[1] == len(got) {
		t.Errorf("the page was loaded before the events %v of %d", loads, len(got))
	}
}

// storedWords reads the stream from its beginning, without a browser.
func storedWords(t *testing.T, url string) (all []noted) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	var n noted
	for lines := bufio.NewScanner(a.Body); lines.Scan(); {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			n.ID = value
		case "event":
			if len(all) == 0 {
				t.Fatal(errors.New("the stream is empty"))
			}
			return all
		case "data":
			if err := json.Unmarshal([]byte(value), &n); err != nil {
				t.Fatal(err)
			}
			if n.ID != fmt.Sprint(len(all)) {
				t.Fatalf("event %d is %+v", len(all), n)
			}
			all = append(all, n)
			n = noted{}
		}
	}
	t.Fatalf("the stream was cut after %d words", len(all))
	return nil
}
