# bash completion for tf-launcher.   source <(tf-launcher completion bash)
_tf_launcher() {
    local line name
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == ":files" ]]; then
            compopt -o default 2>/dev/null
            continue
        fi
        name=${line%%$'\t'*}
        # bash has taken what stands before an = for a word of its own.
        [[ $name == --*=* ]] && name=${name#*=}
        COMPREPLY+=("$name")
    done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    # A run whose path is to follow.
    [[ ${COMPREPLY[0]-} == *: ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _tf_launcher tf-launcher
