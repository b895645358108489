#!/bin/sh
# agent [OPTION...] HOST WORD...: what launchers call in place of ssh; words are joined and evaluated by
# a shell, as ssh does. Options make no sense here and are skipped, with the values that ssh's own take.
while :; do
    case ${1-} in
        -[lpoiFJb]) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
host=${1##*@}
shift
exec "${0%/*}/enter" "$host" sh -c "$*"
