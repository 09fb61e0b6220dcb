#compdef tf-launcher
# zsh completion for tf-launcher.   source <(tf-launcher completion zsh), below compinit
_tf_launcher() {
    local line name text
    local -a candidates open
    for line in "${(@f)$("${words[1]/#\~/$HOME}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == ':files' ]]; then
            _files
        elif [[ -n $line ]]; then
            name=${line%%$'\t'*}
            text=${line#*$'\t'}
            if [[ $name == *: ]]; then
                open+=("${name//:/\\:}:$text")
            else
                candidates+=("${name//:/\\:}:$text")
            fi
        fi
    done
    (( $#candidates )) && _describe -t candidates 'tf-launcher' candidates
    (( $#open )) && _describe -t runs 'run' open -S ''
    return 0
}
if [[ ${funcstack[1]} == _tf_launcher ]]; then
    _tf_launcher "$@"
else
    compdef _tf_launcher tf-launcher
fi
