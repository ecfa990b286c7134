// The HTTP server below the admin API: who connects has a short time to say what for, and a bounded number of places.
import { createServer as createHttpServer, type RequestListener, type Server } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import {
  ADMIN_HEAD_CHECK_INTERVAL_MS,
  ADMIN_HEAD_TIMEOUT_MS,
  ADMIN_HEADER_BYTES_MAX,
  ADMIN_KEEP_ALIVE_MS,
  ADMIN_REQUEST_TIMEOUT_MS,
} from '../model/limits.ts';
import type { AdminConnections } from './connections.ts';
import type { AdminServerOptions } from './context.ts';

type HttpServerOptions = Pick<AdminServerOptions, 'tls' | 'headTimeoutMs'>;

/** Makes the server; it does not listen. `connections` is null where they are not counted. */
export function createAdminHttpServer(
  handler: RequestListener,
  options: HttpServerOptions,
  connections: AdminConnections | null,
): Server {
  const headTimeoutMs = options.headTimeoutMs ?? ADMIN_HEAD_TIMEOUT_MS;
  const times = {
    maxHeaderSize: ADMIN_HEADER_BYTES_MAX,
    headersTimeout: headTimeoutMs,
    requestTimeout: ADMIN_REQUEST_TIMEOUT_MS,
    keepAliveTimeout: ADMIN_KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(ADMIN_HEAD_CHECK_INTERVAL_MS, headTimeoutMs),
  };
  const { tls } = options;
  const server =
    tls === undefined
      ? createHttpServer(times, handler)
      : createHttpsServer({ ...times, ...tls, minVersion: 'TLSv1.2', handshakeTimeout: headTimeoutMs }, handler);
  connections?.watch(server);
  return server;
}
