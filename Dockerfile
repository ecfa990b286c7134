# Stage 1 has what building needs; better-sqlite3 is compiled where no prebuilt binary can be fetched.
FROM node:24-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 make g++ \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY . .
RUN npm run build && npm prune --omit=dev

FROM node:24-slim
ENV NODE_ENV=production \
    UV_THREADPOOL_SIZE=32 \
    KEYVEIL_DATA_DIR=/data \
    KEYVEIL_PROXY_LISTEN=0.0.0.0:7080
WORKDIR /app
COPY --from=build /app/package.json ./package.json
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
RUN install -d -o node -g node -m 0700 /data \
 && ln -s /app/dist/cli/keyveil.sh /usr/local/bin/keyveil
USER node
VOLUME /data
EXPOSE 7080
STOPSIGNAL SIGTERM
# By the socket: it answers whatever the admin API's address and TLS are.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["node", "-e", "require('node:http').get({socketPath: process.env.KEYVEIL_DATA_DIR + '/admin.sock', path: '/readyz'}, (answer) => process.exit(answer.statusCode === 200 ? 0 : 1)).on('error', () => process.exit(1))"]
# In exec form, so that SIGTERM reaches the daemon, which drains; SIGUSR1 must not open the inspector on a process with keys.
ENTRYPOINT ["node", "--disable-sigusr1", "--max-semi-space-size=32", "/app/dist/cli/main.js"]
CMD ["serve"]
