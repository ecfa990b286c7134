// A reply written straight to a socket: for an upgrade that was not granted, where no HTTP server holds the socket.
import type { Duplex } from 'node:stream';
import type { KeyveilError } from '../model/errors.ts';
import type { ClientReply } from './client-exchange.ts';
import type { RawHeaders, ResponseHead } from './exchange.ts';
import { lingerAndClose } from './linger.ts';
import { answerError, serialiseAnswer } from './responses.ts';

const CRLF = '\r\n';

/** Fields as lines, Latin-1. */
export function formatFields(headers: RawHeaders): string {
  let text = '';
  for (let index = 0; index < headers.length; index += 2) text += `${headers[index]}: ${headers[index + 1]}${CRLF}`;
  return text;
}

/** A head as HTTP/1.1 bytes. */
export function formatHead(status: number, reason: string, headers: RawHeaders): Buffer {
  return Buffer.from(`HTTP/1.1 ${status} ${reason}${CRLF}${formatFields(headers)}${CRLF}`, 'latin1');
}

/** Writes an answer on a connection that no server looks after, and closes it. */
export function answerAndClose(socket: Duplex, error: KeyveilError, host: string): void {
  if (socket.destroyed || !socket.writable) return void socket.destroy();
  socket.end(serialiseAnswer(answerError(error, host)));
  lingerAndClose(socket);
}

/** One reply on an HTTP/1.1 connection, which closes after it. */
export class RawReply implements ClientReply {
  onDrain: (() => void) | null = null;
  onAbort: (() => void) | null = null;
  onFinish: (() => void) | null = null;
  started = false;
  readonly #socket: Duplex;
  #isChunked = false;
  #isDetached = false;
  readonly #onDrainEvent = (): void => this.onDrain?.();
  readonly #onCloseEvent = (): void => this.#close();

  constructor(socket: Duplex) {
    this.#socket = socket;
    socket.on('drain', this.#onDrainEvent);
    socket.on('close', this.#onCloseEvent);
    socket.on('error', this.#onCloseEvent);
  }

  /** Leaves the socket to its next owner; errors of it stay listened to. */
  detach(): void {
    this.#isDetached = true;
    this.onAbort = null;
    this.onFinish = null;
    this.#socket.off('drain', this.#onDrainEvent);
    this.#socket.off('close', this.#onCloseEvent);
  }

  information(status: number, reason: string, headers: RawHeaders): boolean {
    return this.started || this.#socket.write(formatHead(status, reason, headers));
  }

  head(head: ResponseHead): void {
    if (this.started) return;
    this.started = true;
    this.#isChunked = head.body.kind === 'stream';
    const framing = this.#isChunked ? ['Transfer-Encoding', 'chunked'] : [];
    this.#socket.write(formatHead(head.status, head.reason, [...head.headers, ...framing, 'Connection', 'close']));
  }

  data(chunk: Buffer): boolean {
    if (!this.#isChunked) return this.#socket.write(chunk);
    if (chunk.length === 0) return true;
    this.#socket.write(`${chunk.length.toString(16)}${CRLF}`, 'latin1');
    this.#socket.write(chunk);
    return this.#socket.write(CRLF, 'latin1');
  }

  end(trailers: RawHeaders): void {
    if (this.#isChunked) this.#socket.write(`0${CRLF}${formatFields(trailers)}${CRLF}`, 'latin1');
    this.#socket.end(() => this.#finish());
    lingerAndClose(this.#socket);
  }

  error(): void {
    this.#socket.destroy();
  }

  #finish(): void {
    const { onFinish } = this;
    this.onFinish = null;
    this.onAbort = null;
    onFinish?.();
  }

  #close(): void {
    const { onAbort } = this;
    this.onAbort = null;
    this.onFinish = null;
    if (!this.#isDetached) onAbort?.();
  }
}
