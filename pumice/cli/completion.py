"""Print a script that completes `pumice` in a shell: commands, flags, and names from the cluster.

bash: `source <(pumice completion bash)`; zsh: `source <(pumice completion zsh)` after `compinit`;
fish: `pumice completion fish | source`. Put the line into the shell's own start file.
"""

import argparse
from typing import Final

_SCRIPTS: Final = {
    "bash": """\
_pumice() {
    local IFS=$'\\n'
    COMPREPLY=($(pumice __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _pumice pumice
""",
    "zsh": """\
#compdef pumice
_pumice() {
    local -a found
    found=(${(f)"$(pumice __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _pumice pumice
""",
    "fish": """\
function __pumice_complete
    set -l words (commandline -opc) (commandline -ct)
    pumice __complete $words[2..-1] 2>/dev/null
end
complete -c pumice -f -a '(__pumice_complete)'
complete -c pumice -n '__fish_seen_argument -s f -l filename' -F
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's argument."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS))


async def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[args.shell], end="")
    return 0
