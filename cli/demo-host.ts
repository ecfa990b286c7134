// The demo's upstream: a local TLS server that prints what it received and sends it back, as a careless API would.
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { createSecureContext } from 'node:tls';
import { createThrowawayAuthority } from '../daemon/throwaway-authority.ts';

export interface DemoHost {
  readonly port: number;
  /** CA that its certificates come from, PEM. */
  readonly caPem: string;
  /** `Authorization` of each request, with the host it was for. */
  readonly received: readonly { readonly host: string; readonly authorization: string }[];
  close(): Promise<void>;
}

/** Starts the server for some host names on a port of 127.0.0.1. */
export async function startDemoHost(hosts: readonly string[], print: (line: string) => void): Promise<DemoHost> {
  const authority = createThrowawayAuthority('Keyveil demo upstream');
  const contexts = new Map(hosts.map((host) => [host, createSecureContext(authority.issue(host))]));
  const received: { host: string; authorization: string }[] = [];
  const server = createServer({ SNICallback: (name, done) => done(null, contexts.get(name)) }, (request, response) => {
    const host = request.headers.host ?? '';
    const authorization = request.headers.authorization ?? '';
    received.push({ host, authorization });
    print(`${host} received  Authorization: ${authorization}`);
    response.setHeader('content-type', 'application/json');
    response.end(`${JSON.stringify({ you_sent: authorization })}\n`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    caPem: authority.caPem,
    received,
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}
