#!/bin/sh
# The command `keyveil`: starts the runtime with what it can only be told at its start. The objects of a request outlive the
# young generation that V8 gives a program by itself, and every one that does costs its collector work.
# A shell that is given this file by name may not say where the file is, and another main.js must not be run in its place.
if ! self=$(readlink -f -- "$0") || [ "${self##*/}" != keyveil.sh ] || [ ! -f "$self" ]; then
  echo "keyveil: can't tell where it is installed. Run it by its path." >&2
  exit 1
fi
exec node --max-semi-space-size=32 "${self%/*}/main.js" "$@"
