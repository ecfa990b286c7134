#!/bin/sh
# The command `keyveil`: starts the runtime with what it can only be told at its start. The objects of a request outlive the
# young generation that V8 gives a program by itself, and every one that does costs its collector work.
main=$(readlink -f "$0")
exec node --max-semi-space-size=32 "${main%/*}/main.js" "$@"
