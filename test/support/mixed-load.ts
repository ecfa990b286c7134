// Control-plane writes and proxy traffic at once, for tests that end the daemon in the middle: what was answered is kept.
import type { DaemonProcess } from './daemon-process.ts';
import { readHead, type TestSession } from './operator.ts';

const HOST = 'api.test';
const WRITERS = 3;
const CLIENTS = 2;
const VAULTS = 20;

/** A write that the daemon said yes to, and how to see it. */
interface Written {
  readonly path: string;
  readonly secretName: string;
  readonly placeholder: string;
  /** The values that it may have now, the newest acknowledged one first. */
  values: readonly string[];
  isArchived: boolean;
}

export interface MixedLoad {
  readonly written: readonly Written[];
  /** Requests that were answered with 200. */
  readonly answeredRequests: number;
  /** Resolves when every client and writer has met its end. */
  readonly ended: Promise<void>;
  stop(): void;
}

export interface MixedLoadOptions {
  readonly keyveil: DaemonProcess;
  readonly session: TestSession;
  readonly placeholder: string;
  /** Makes names unique over several loads. */
  readonly round: number;
}

/** Starts writers and clients; each ends with the connection error that the daemon's end makes of its last call. */
export function startMixedLoad(options: MixedLoadOptions): MixedLoad {
  const { keyveil, session, placeholder, round } = options;
  const written: Written[] = [];
  let answeredRequests = 0;
  let isStopped = false;

  async function writeOnce(writer: number, number: number, vaultId: string): Promise<void> {
    const secretName = `KEY_${round}_${writer}_${number}`;
    const first = `first-value-of-${secretName}`;
    const networking = { type: 'limited', allowed_hosts: [HOST] };
    const made = await keyveil.createCredential(vaultId, { secret_name: secretName, secret_value: first, networking });
    const path = `/v1/vaults/${vaultId}/credentials/${made.id}`;
    const entry: Written = { path, secretName, placeholder: made.placeholder, values: [first], isArchived: false };
    written.push(entry);
    const second = `second-value-of-${secretName}`;
    // From here on either may be there; once it was answered, only the second.
    entry.values = [first, second];
    const body = { auth: { type: 'environment_variable', secret_value: second } };
    if ((await keyveil.admin('POST', path, body)).status === 200) entry.values = [second];
    if (number % 5 !== 0) return;
    const { status } = await keyveil.admin('POST', `${path}/archive`);
    if (status === 200) entry.isArchived = true;
  }

  async function write(writer: number): Promise<void> {
    let vaultId = '';
    for (let number = 0; !isStopped; number += 1) {
      if (number % VAULTS === 0) vaultId = await keyveil.createVault(`vault ${round} ${writer} ${number}`);
      await writeOnce(writer, number, vaultId);
    }
  }

  async function request(): Promise<void> {
    while (!isStopped) {
      const tls = await keyveil.tunnel(session, `${HOST}:443`);
      try {
        for (let count = 0; count < 10 && !isStopped; count += 1) {
          tls.write(`GET /load HTTP/1.1\r\nHost: ${HOST}\r\nX-Key: ${placeholder}\r\n\r\n`);
          const head = await readHead(tls);
          if (!head.startsWith('HTTP/1.1 200 ')) throw new Error(head);
          answeredRequests += 1;
          tls.read();
        }
      } finally {
        tls.destroy();
      }
    }
  }

  const loops = [
    ...Array.from({ length: WRITERS }, (_, writer) => write(writer)),
    ...Array.from({ length: CLIENTS }, request),
  ];
  return {
    written,
    get answeredRequests() {
      return answeredRequests;
    },
    ended: Promise.allSettled(loops).then(() => undefined),
    stop: () => void (isStopped = true),
  };
}

/** Compares what was answered with what is there; what differs, in words. */
export async function findLostWrites(keyveil: DaemonProcess, written: readonly Written[]): Promise<string[]> {
  const lost: string[] = [];
  for (const { path, secretName, placeholder, isArchived, values } of written) {
    const { status, body } = await keyveil.admin('GET', path);
    const auth = body['auth'] as Record<string, unknown> | undefined;
    const isThere = status === 200 && auth?.['placeholder'] === placeholder;
    const hasRotation = values.length > 1 || values[0]?.startsWith('first') === true || auth?.['secret_version'] === 2;
    const isGone = isArchived && body['archived_at'] === null;
    if (!isThere || !hasRotation || isGone) lost.push(`${secretName}: ${status} ${JSON.stringify(body)}`);
  }
  return lost;
}
