# fish completion for tf-launcher.   tf-launcher completion fish > ~/.config/fish/completions/tf-launcher.fish
function __tf_launcher_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -q last[1]; or set last ''
    set -l program (string replace -r '^~' "$HOME" -- $words[1])
    for line in ($program __complete $words[2..] $last 2>/dev/null)
        if test "$line" = ':files'
            __fish_complete_path "$last"
        else
            echo $line
        end
    end
end
complete -c tf-launcher -f -a '(__tf_launcher_complete)'
