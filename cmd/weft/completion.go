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
	var cases, values strings.Builder
	global := flags(e.model.Flags)
	for _, v := range e.model.Children {
		verbs = append(verbs, v.Name)
		var subs []string // the verbs of a group
		all := v.Flags
		writeValues(&values, fmt.Sprintf(`"%s "*"`, v.Name), v.Flags)
		for _, sub := range v.Children {
			subs, all = append(subs, sub.Name), append(all, sub.Flags...)
			writeValues(&values, fmt.Sprintf(`"%s %s`, v.Name, sub.Name), sub.Flags)
		}
		fmt.Fprintf(&cases, "\t%s) words=%q subs=%q ;;\n", v.Name, flags(all)+" "+global, strings.Join(subs, " "))
	}
	writeValues(&values, `*"`, e.model.Flags)
	_, err := fmt.Fprintf(e.out, script, strings.Join(verbs, "|"), values.String(), cases.String(), strings.Join(verbs, " "))
	return err
}

const script = `# completion of weft for bash: source <(weft completion bash)
_weft() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= sub= words subs i
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		%s)
			verb=${COMP_WORDS[i]}
			while ((++i < COMP_CWORD)); do
				[[ ${COMP_WORDS[i]} == -* ]] || { sub=${COMP_WORDS[i]}; break; }
			done
			break ;;
		esac
	done
	case "$verb $sub $prev" in
%s	esac
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

// flags returns the names of flags.
func flags(all []*kong.Flag) string {
	var found []string
	for _, f := range all {
		if name := "--" + f.Name; !slices.Contains(found, name) { // verbs of a group share flags
			found = append(found, name)
		}
	}
	return strings.Join(found, " ")
}

// writeValues writes a case for each flag that has a fixed set of values. verb is how its pattern begins: flags of several verbs may
// have one name.
func writeValues(b *strings.Builder, verb string, all []*kong.Flag) {
	for _, f := range all {
		if f.Enum != "" {
			values := strings.TrimSpace(strings.ReplaceAll(f.Enum, ",", " "))
			fmt.Fprintf(b, "\t%s --%s\") COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", verb, f.Name, values)
		}
	}
}
