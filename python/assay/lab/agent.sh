#!/bin/sh
# agent [OPTION...] HOST ARGUMENT...: replaces ssh for launchers. A shell evaluates the joined arguments, as ssh
# does. Options of ssh and their values are ignored.
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
