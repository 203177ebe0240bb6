#!/bin/sh
# hw.sh METHOD [PARAMS]: one call to the daemon, its reply on stdout; a failed exit without one. Needs nc of OpenBSD.
none='{}'
printf '{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}\n' "$1" "${2:-$none}" |
  nc -N -U "${HWTOOL_SOCKET:-/run/hwtool}/agent.sock" | grep .
