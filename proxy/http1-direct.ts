// HTTP/1.1 without a server of Node's: requests without a body, as most are, are read and answered on the connection
// itself. With the first one that is anything else, the connection goes to Node's server for good.
import type { Duplex } from 'node:stream';
import { PIPELINED_BYTES_MAX } from '../model/limits.ts';
import type { ClientRequest } from './client-exchange.ts';
import { DirectReply } from './direct-reply.ts';
import { noHeaders, type BodyFraming } from './exchange.ts';
import { CHUNK_OVERHEAD_BYTES } from './http1-intake.ts';
import type { Pipeline } from './pipeline.ts';
import { readPlainHead, type PlainHead } from './plain-head.ts';
import type { Tunnel } from './tunnels.ts';

const METHODS = new Set(['GET', 'HEAD', 'DELETE']);
const NO_BODY: BodyFraming = { kind: 'none' };

export interface DirectOptions {
  readonly tunnel: Tunnel;
  readonly pipeline: Pipeline;
  /** Gives the connection, in which all that was not read is, to a server. */
  readonly takeOver: (socket: Duplex, tunnel: Tunnel) => void;
}

function requestOf({ method, target, rawHeaders }: PlainHead): ClientRequest {
  return {
    httpVersion: '1.1',
    method,
    target,
    headers: rawHeaders,
    body: NO_BODY,
    stream: null,
    trailers: noHeaders,
    expectsContinue: false,
  };
}

/** One connection inside a tunnel, or the tunnel itself, until a server takes it over. */
export class DirectConnection {
  readonly #socket: Duplex;
  readonly #options: DirectOptions;
  #reply: DirectReply | null = null;
  /** What came while a request was under way. */
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(socket: Duplex, options: DirectOptions) {
    this.#socket = socket;
    this.#options = options;
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('drain', this.#onDrain);
    socket.on('close', this.#onClose);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#reply === null) return this.#take(chunk);
    this.#held.push(chunk);
    this.#heldBytes += chunk.length + CHUNK_OVERHEAD_BYTES;
    // So much is read ahead, so that a client that leaves is noticed.
    if (this.#heldBytes >= PIPELINED_BYTES_MAX) this.#socket.pause();
  };

  // RFC 9112 section 9.6; Node's server does the same.
  readonly #onEnd = (): void => {
    this.#reply?.clientEnded();
    this.#socket.end();
  };

  readonly #onDrain = (): void => this.#reply?.drain();

  readonly #onClose = (): void => this.#reply?.close();

  readonly #onReplyOver = (): void => {
    this.#reply = null;
    if (this.#held.length === 0 || !this.#socket.writable) return;
    const chunk = Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    if (this.#socket.isPaused()) this.#socket.resume();
    this.#take(chunk);
  };

  #take(chunk: Buffer): void {
    const head = readPlainHead(chunk);
    // RFC 9112 section 3.2: one Host, no more and no less.
    const isDirect = head !== null && METHODS.has(head.method) && head.target.startsWith('/') && head.hostCount === 1;
    if (!isDirect) return this.#leave(chunk);
    const { tunnel, pipeline } = this.#options;
    const reply = new DirectReply(this.#socket, { isHead: head.method === 'HEAD', onOver: this.#onReplyOver });
    this.#reply = reply;
    pipeline.run(tunnel, { request: requestOf(head), reply });
  }

  #leave(chunk: Buffer): void {
    const socket = this.#socket;
    socket.off('data', this.#onData);
    socket.off('end', this.#onEnd);
    socket.off('drain', this.#onDrain);
    socket.off('close', this.#onClose);
    socket.pause();
    socket.unshift(chunk);
    this.#options.takeOver(socket, this.#options.tunnel);
    socket.resume();
  }
}
