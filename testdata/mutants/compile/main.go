// Command compile stands between go test and the compiler, by go test -toolexec, so that a fault in one package
// does not have all packages compiled again that import it. The go command compiles a package again if anything in
// an imported package is different. The compiler itself reads of an import only its export data: what is declared,
// and what may be inlined. As long as these and its own source are what they were in an earlier call, the result is
// the same, and is taken from the folder WEFT_COMPILED.
//
// All other tools, and packages of other modules, are passed on as they are.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	tool, args := os.Args[1], os.Args[2:]
	path := value(args, "-p")
	ours := path == "main" || strings.HasPrefix(path, "github.com/weft-go/weft")
	if filepath.Base(tool) != "compile" || !ours || value(args, "-symabis") != "" || value(args, "-asmhdr") != "" {
		exit(run(tool, args))
	}
	if err := trim(args); err != nil {
		exit(err)
	}
	exit(compile(tool, args, os.Getenv("WEFT_COMPILED")))
}

// trim has the result name the package and not its folder, of which there are several. Only here: go test -trimpath
// would have all packages of other modules compiled that are already there.
func trim(args []string) error {
	folder, err := os.Getwd()
	if i := slices.Index(args, "-trimpath"); err == nil && i >= 0 && i+1 < len(args) {
		args[i+1] += ";" + folder + "=>" + value(args, "-p")
	}
	return err
}

// compile writes what the compiler makes of args, from folder if it is there.
func compile(tool string, args []string, folder string) error {
	key, err := inputs(args)
	if err != nil {
		return err
	}
	kept, output, id := filepath.Join(folder, key), value(args, "-o"), value(args, "-buildid")
	object, err := os.ReadFile(kept)
	if err == nil {
		// Before the object is the id of the build that made it, which has always the same length.
		was, rest, _ := bytes.Cut(object, []byte("\n"))
		return os.WriteFile(output, bytes.ReplaceAll(rest, was, []byte(id)), 0o644)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := run(tool, args); err != nil {
		return err
	}
	if object, err = os.ReadFile(output); err != nil {
		return err
	}
	// Several calls may write the same at the same time.
	file, err := os.CreateTemp(folder, "new-")
	if err != nil {
		return err
	}
	if _, err = file.Write(slices.Concat([]byte(id), []byte("\n"), object)); err == nil {
		err = file.Close()
	}
	if err == nil {
		err = os.Rename(file.Name(), kept)
	}
	return err
}

// inputs is a digest of all that the result depends on.
func inputs(args []string) (string, error) {
	all := sha256.New()
	for i := 0; i < len(args); i++ {
		var err error
		switch arg := args[i]; {
		case arg == "-o" || arg == "-buildid" || arg == "-trimpath":
			// They name folders of this call, and what is in them is the same. No result contains a
			// name of a folder.
			i++
		case arg == "-importcfg":
			i++
			err = imports(all, args[i])
		case arg == "-embedcfg":
			i++
			err = embedded(all, args[i])
		case strings.HasPrefix(arg, "-c="): // how many functions it compiles at a time
		case strings.HasSuffix(arg, ".go"):
			err = content(all, arg)
		default:
			fmt.Fprintf(all, "%q\n", arg)
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", all.Sum(nil)), nil
}

// content adds the name of the file and what is in it.
func content(all io.Writer, name string) error {
	text, err := os.ReadFile(name)
	fmt.Fprintf(all, "%q %q\n", filepath.Base(name), text)
	return err
}

// embedded adds the files that a package embeds.
func embedded(all io.Writer, config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var named struct {
		Patterns map[string][]string
		Files    map[string]string // from the name in the package to the path
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	fmt.Fprintf(all, "%q\n", named.Patterns)
	for _, name := range slices.Sorted(maps.Keys(named.Files)) {
		fmt.Fprintf(all, "%q\n", name)
		if err := content(all, named.Files[name]); err != nil {
			return err
		}
	}
	return nil
}

// imports adds the export data of each imported package.
func imports(all io.Writer, config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		named, isPackage := strings.CutPrefix(line, "packagefile ")
		if !isPackage {
			fmt.Fprintf(all, "%q\n", line)
			continue
		}
		path, name, _ := strings.Cut(named, "=")
		data, err := exported(name)
		if err != nil {
			return fmt.Errorf("export data of %s: %w", path, err)
		}
		fmt.Fprintf(all, "%q %x\n", path, sha256.Sum256(data))
	}
	return nil
}

// exported is the export data of a compiled package. It is an archive; its first entry has a header of 60 bytes,
// which ends with the size in decimal digits and two bytes, and lines of text that end with "$$B".
func exported(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	header := make([]byte, len("!<arch>\n")+60)
	if _, err := io.ReadFull(file, header); err != nil {
		return nil, err
	}
	var size int64
	if _, err := fmt.Sscan(string(header[56:66]), &size); err != nil {
		return nil, err
	}
	entry := make([]byte, size)
	if _, err := io.ReadFull(file, entry); err != nil {
		return nil, err
	}
	_, data, found := bytes.Cut(entry, []byte("\n$$B\n"))
	if !found {
		return nil, errors.New("there is none in its first entry")
	}
	return data, nil
}

// value is what follows the flag in args.
func value(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func run(tool string, args []string) error {
	command := exec.Command(tool, args...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	return command.Run()
}

// exit ends the process as the tool ended.
func exit(err error) {
	var ended *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &ended):
		os.Exit(ended.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}
