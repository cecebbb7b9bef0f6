# bash completion of ferry(1). What a command takes is in its --help, which is read here.
# shellcheck shell=bash

# _ferry_options HELP, _ferry_commands HELP: the options and the commands that a help text lists.
_ferry_options() { sed -nE 's/^ +(-[a-z], ?)?(--[a-z][a-z-]*).*/\2/p' <<<"$1"; }
_ferry_commands() { sed -nE 's/^  ([a-z]+)( .*)?$/\1/p' <<<"$1"; }

# _ferry_has_value HELP WORD: whether WORD is an option that is followed by a value.
_ferry_has_value() { [[ $2 == --* && $1 == *" $2 "[A-Z]* ]]; }

_ferry() {
  local cur prev words cword i help command=(ferry)
  _init_completion || return
  help=$(ferry --help 2>/dev/null)
  for ((i = 1; i < cword; i++)); do
    case ${command[*]} in
      'ferry lab') return ;; # has one help for all that it does
      'ferry run')
        if [[ ${words[i]} == -- ]]; then
          _command_offset $((i + 1))
          return
        elif [[ ${words[i]} != -* ]]; then
          _command_offset "$i"
          return
        elif _ferry_has_value "$help" "${words[i]}"; then
          i=$((i + 1))
        fi
        ;;
      *)
        if _ferry_commands "$help" | grep -qxF -e "${words[i]}"; then
          command+=("${words[i]}")
          help=$("${command[@]}" --help 2>/dev/null)
        fi
        ;;
    esac
  done
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_ferry_options "$help")" -- "$cur")
  elif ! _ferry_has_value "$help" "$prev"; then
    if [[ ${command[*]} == 'ferry run' ]]; then
      _command_offset "$cword"
    else
      mapfile -t COMPREPLY < <(compgen -W "$(_ferry_commands "$help")" -- "$cur")
    fi
  fi
}

complete -o bashdefault -o default -F _ferry ferry
