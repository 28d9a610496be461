#!/usr/bin/env bash
# Pages out cold memory of real programs in a Debian 12 guest with swap, and prints the result of each check: redis-server, memcached,
# PostgreSQL, a JVM and Python, each with much idle data and a little that is in use.
# usage: programs.sh [--program FILE] [PROGRAM...]
#
#   --program FILE   the isotherm to test (target/release/isotherm)
#   PROGRAM          redis, memcached, postgres, java, python (all, at the same time); see lab/debian/programs-test.sh
#
# The output of the guest is kept in target/lab/programs.log, and its kernel's and systemd's messages in target/lab/programs.kernel.log.
#
# exit status: 0 every check was ok; 1 a check failed, or the guest ended early; 2 wrong usage
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lab/debian/guest.sh
. lab/debian/guest.sh

program=target/release/isotherm
take_options program "$@"
[ -x "$program" ] || fail "there is no program $program: run make build, or name one with --program"

echo "guest programs (Debian 12, kernel 6.12): $program"
# bsh runs Java's statements, so that no compiler is needed.
in_guest programs 6.12 --memory 2048 --swap 768 --with "postgresql memcached python3 default-jre-headless bsh" --bring "$program=isotherm" \
    --bring lab/debian/programs.py --bring lab/debian/hold.bsh -- lab/debian/programs-test.sh "${parts[@]}"
