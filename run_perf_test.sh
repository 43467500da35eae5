#!/bin/sh
# Profiles the server: 4 clients x 200 requests, then 16 x 50 on SqueezeNet. Builds what is missing;
# arguments go to `lumen perf` (--help lists them).
set -eu
cd "$(dirname "$0")"
test -x .venv/bin/lumen || ./dev build
exec .venv/bin/lumen perf "$@"
