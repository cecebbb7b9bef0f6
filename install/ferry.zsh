#compdef ferry
# zsh completion of ferry(1). What a command takes is in its --help, which is read here.

_ferry() {
  local i line help=$(ferry --help 2>/dev/null)
  local -a command=(ferry) options commands
  for ((i = 2; i < CURRENT; i++)); do
    case "$command" in
      'ferry lab') _default; return ;; # has one help for all that it does
      'ferry run')
        if [[ $words[i] == -- || $words[i] != -* ]]; then
          [[ $words[i] != -- ]] || ((i++))
          shift $((i - 1)) words
          ((CURRENT -= i - 1))
          _normal
          return
        elif [[ $help == *" $words[i] "[A-Z]* ]]; then
          ((i++))
        fi
        ;;
      *)
        if [[ $help == *$'\n'"  $words[i] "* ]]; then
          command+=($words[i])
          help=$($command --help 2>/dev/null)
        fi
        ;;
    esac
  done
  for line in ${(f)help}; do
    if [[ $line =~ '^ +(-[a-z], ?)?(--[a-z][a-z-]*)( .*)?$' ]]; then
      options+=("$match[2]:${match[3]##*  }")
    elif [[ $line =~ '^  ([a-z]+)( .*)?$' ]]; then
      commands+=("$match[1]:${match[2]##*  }")
    fi
  done
  if [[ $PREFIX == -* ]]; then
    _describe option options
  elif [[ $words[CURRENT-1] == --* && $help == *" $words[CURRENT-1] "[A-Z]* ]]; then
    _default
  elif [[ "$command" == 'ferry run' ]]; then
    _command_names -e
  elif ((${#commands})); then
    _describe command commands
  else
    _default
  fi
}

_ferry "$@"
