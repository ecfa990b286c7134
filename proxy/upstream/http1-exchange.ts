// One request under way on an HTTP/1.1 connection: its body going out, and what its owner may ask for meanwhile.
import type { Duplex } from 'node:stream';
import { KeyveilError } from '../../model/errors.ts';
import type { Destination, RawHeaders, UpstreamExchange, UpstreamHandlers, UpstreamRequest } from '../exchange.ts';
import { noHeaders } from '../exchange.ts';
import { protocolFailed } from './failures.ts';
import { serialiseLastChunk } from './http1-request.ts';

/** The connection as an exchange sees it. */
export interface Http1Carrier {
  readonly socket: Duplex;
  /** The request is sent: its response's head is due. */
  awaitHead(): void;
  /** Closes the connection, telling no exchange. */
  drop(): void;
  /** Closes the connection and fails its exchange. */
  fail(error: Error): void;
}

export interface Http1ExchangeInput {
  readonly destination: Destination;
  readonly request: UpstreamRequest;
  /** The serialised head, Latin-1. */
  readonly head: string;
  readonly handlers: UpstreamHandlers;
  readonly responseTimeoutMs: number;
  /** The upstream's answer was not HTTP/1.1. */
  readonly onForeignAnswer: () => void;
}

/** A request under way. It outlives its connection when it is sent again. */
export class Http1Exchange implements UpstreamExchange {
  readonly input: Http1ExchangeInput;
  connection: Http1Carrier | null = null;
  isRequestSent: boolean;
  isOver = false;
  hasHead = false;
  #bodyBytesLeft: number;

  constructor(input: Http1ExchangeInput) {
    this.input = input;
    const { body } = input.request;
    this.isRequestSent = body.kind === 'none';
    this.#bodyBytesLeft = body.kind === 'length' ? body.bytes : 0;
  }

  write(chunk: Buffer): boolean {
    if (this.isOver || this.isRequestSent || this.connection === null) return true;
    if (chunk.length === 0) return true;
    const { socket } = this.connection;
    if (this.input.request.body.kind === 'length') {
      this.#bodyBytesLeft -= chunk.length;
      if (this.#bodyBytesLeft >= 0) return socket.write(chunk);
      this.connection.fail(this.#lengthError());
      return true;
    }
    socket.cork();
    socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
    socket.write(chunk);
    const hasRoom = socket.write('\r\n', 'latin1');
    socket.uncork();
    return hasRoom;
  }

  end(trailers: RawHeaders = noHeaders()): void {
    if (this.isOver || this.isRequestSent || this.connection === null) return;
    if (this.input.request.body.kind === 'length') {
      // A body that stops short would make the upstream take the next request's bytes for its rest.
      if (this.#bodyBytesLeft !== 0) {
        this.connection.fail(this.#lengthError());
        return;
      }
    } else {
      try {
        this.connection.socket.write(serialiseLastChunk(trailers), 'latin1');
      } catch (error) {
        this.connection.fail(error as Error);
        return;
      }
    }
    this.isRequestSent = true;
    if (!this.hasHead) this.connection.awaitHead();
  }

  pause(): void {
    if (!this.isOver) this.connection?.socket.pause();
  }

  resume(): void {
    if (!this.isOver) this.connection?.socket.resume();
  }

  abort(): void {
    if (this.isOver) return;
    this.isOver = true;
    const { connection } = this;
    this.connection = null;
    connection?.drop();
  }

  /** Tells the owner that it failed, once. */
  settleError(error: Error): void {
    if (this.isOver) return;
    this.isOver = true;
    this.connection = null;
    if (!this.hasHead && error instanceof KeyveilError && error.code === 'upstream_protocol_error') {
      this.input.onForeignAnswer();
    }
    this.input.handlers.error(error);
  }

  #lengthError(): Error {
    return protocolFailed(this.input.destination.authority, 'the body of the request was not as long as it said');
  }
}
