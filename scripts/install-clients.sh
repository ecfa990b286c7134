#!/bin/sh
# Installs what the client matrix runs (npm run test:clients) on Debian 12: as root, with apt-get and npm.
set -eu
cd "$(dirname "$0")/.."

apt-get update
apt-get install -y --no-install-recommends \
  curl wget git nghttp2-client \
  python3 python3-pip python3-requests python3-httpx python3-h2 python3-aiohttp python3-websockets python3-grpcio \
  golang-go openjdk-17-jdk-headless \
  cargo rustc librust-ureq-dev \
  chromium libnss3-tools

# The libraries of Node.js, and Node.js 24 itself, which is an npm package.
npm ci --prefix test/clients --no-audit --no-fund
