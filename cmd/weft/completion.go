package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completion struct {
	Shell string `arg:"" enum:"bash" default:"bash" help:"The shell: bash. Use it with: source <(weft completion bash)"`
}

// Run prints a script that completes verbs, flags and the values of flags that have a fixed
// set. Everything else is completed as a file.
func (completion) Run(e *env) error {
	var verbs []string
	var cases strings.Builder
	values := map[string]string{}
	global := flags(e.model.Flags, values)
	for _, v := range e.model.Children {
		verbs = append(verbs, v.Name)
		var subs []string // the verbs of a group
		all := v.Flags
		for _, sub := range v.Children {
			subs, all = append(subs, sub.Name), append(all, sub.Flags...)
		}
		fmt.Fprintf(&cases, "\t%s) words=%q subs=%q ;;\n", v.Name, flags(all, values)+" "+global, strings.Join(subs, " "))
	}
	var enums strings.Builder
	for _, flag := range sortedKeys(values) {
		fmt.Fprintf(&enums, "\t--%s) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", flag, values[flag])
	}
	_, err := fmt.Fprintf(e.out, script, enums.String(), strings.Join(verbs, "|"), cases.String(), strings.Join(verbs, " "))
	return err
}

const script = `# completion of weft for bash: source <(weft completion bash)
_weft() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= words subs word
	COMPREPLY=()
	case $prev in
%s	esac
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case $word in
		%s) verb=$word; break ;;
		esac
	done
	case $verb in
%s	*) COMPREPLY=($(compgen -W %q -- "$cur")); return ;;
	esac
	if [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$words" -- "$cur"))
	elif [[ $prev == "$verb" ]]; then
		COMPREPLY=($(compgen -W "$subs" -- "$cur"))
	fi
}
complete -o default -F _weft weft
`

// flags returns the names of flags, and adds those with a fixed set of values to values.
func flags(all []*kong.Flag, values map[string]string) string {
	var found []string
	for _, f := range all {
		if name := "--" + f.Name; !slices.Contains(found, name) { // verbs of a group share flags
			found = append(found, name)
		}
		if f.Enum != "" {
			values[f.Name] = strings.TrimSpace(strings.ReplaceAll(f.Enum, ",", " "))
		}
	}
	return strings.Join(found, " ")
}
