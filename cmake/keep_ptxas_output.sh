#!/bin/sh
# Runs a compilation by nvcc and keeps what it says in <object>.ptxas; shows all but the figures of the kernels.
object=
for argument in "$@"; do
    [ "$before" = -o ] && object=$argument
    before=$argument
done
case $object in
*.o) ;;
*) exec "$@" ;;
esac
"$@" 2>"$object.ptxas"
status=$?
# A kernel's figures are two lines of "ptxas info" and one that starts with blanks and a number of bytes.
grep -v -e '^ptxas info' -e '^ *[0-9]* bytes stack frame' "$object.ptxas" >&2
exit $status
