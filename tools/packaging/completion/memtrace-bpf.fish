# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Completion of memtrace-bpf in fish. The program itself says what can come next.

function __memtrace_bpf_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l value (string replace -r '^--[^=]*=' '' -- $word)
    set -l before (string sub -l (math (string length -- $word) - (string length -- $value)) -- $word)
    for line in ($words[1] --complete $words[2..-1] $word 2>/dev/null)
        switch $line
            case :file
                for path in (__fish_complete_path $value)
                    echo $before$path
                end
            case :folder
                for path in (__fish_complete_directories $value '')
                    echo $before$path
                end
            case :recording
                __fish_complete_suffix .mtr
            case :user
                for user in (__fish_complete_users)
                    echo $before$user
                end
            case ':command *'
                set -l first (math (string replace ':command ' '' -- $line) + 2)
                __fish_complete_subcommand --commandline $words[$first..-1] $word
            case '*'
                echo $line
        end
    end
end

complete -c memtrace-bpf -f -a '(__memtrace_bpf_complete)'
