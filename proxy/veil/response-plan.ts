// Decides from a response's head how its body is veiled, and what the head becomes.
import { type RawHeaders, type ResponseHead, headerValue, withHeader, withoutHeaders } from '../exchange.ts';
import { type BoundaryFinder, EventBoundaries, GrpcBoundaries, LINE_BOUNDARIES, NO_BOUNDARIES } from './boundaries.ts';
import { bodyClassOf } from '../swap/body-class.ts';
import { codingOf, type ContentCoding } from '../swap/content-coding.ts';
import { withoutBodyDigests } from '../swap/digests.ts';

/** How a body is treated. */
export interface BodyPlan {
  /**
   * `none`: there is no body. `whole`: it is read whole while there is room for it. `stream`: it is veiled as it comes.
   */
  readonly mode: 'none' | 'whole' | 'stream';
  /** The coding that is undone; null for none. */
  readonly coding: ContentCoding | null;
  /** What is found is overwritten with `*`: a length was stated that can't be changed, or stands in the body. */
  readonly sameLength: boolean;
  /** It has a coding that can't be undone, and is searched as it is: a name such as `none` or `utf-8` hides nothing. */
  readonly isOpaque: boolean;
  /** What the fields say of the body may be said of more than what comes: of the whole, of which this is a part or nothing. */
  readonly isPart: boolean;
}

export interface PlanOptions {
  readonly method: string;
  /** Bytes up to which a body of known length is read whole. */
  readonly bufferBytes: number;
}

const CODING_FIELDS: ReadonlySet<string> = new Set(['content-encoding']);
const LENGTH_FIELD: ReadonlySet<string> = new Set(['content-length']);
const LENGTH_AND_CODING_FIELDS: ReadonlySet<string> = new Set(['content-encoding', 'content-length']);

/** Types whose messages begin with a flag and a length, as gRPC's do; Connect's streams look the same. */
const GRPC_TYPE = /^application\/(grpc(-web)?(\+|$)|connect\+)/;
const LINE_TYPE = /^(text\/plain|application\/(x-)?(ndjson|jsonl|jsonlines|json-seq))$/;

function mediaTypeOf(headers: RawHeaders): string {
  return (headerValue(headers, 'content-type') ?? '').replace(/;.*$/s, '').trim().toLowerCase();
}

/** How the body of a response is veiled. */
export function planBody(head: ResponseHead, options: PlanOptions): BodyPlan {
  const { status, body, headers } = head;
  const coding = codingOf(headers);
  const isPart = status === 206;
  const isOpaque = coding === 'unsupported' || (isPart && coding !== null);
  if (options.method === 'HEAD' || status === 204 || status === 304 || body.kind === 'none') {
    return { mode: 'none', coding: isOpaque ? null : coding, sameLength: false, isOpaque: false, isPart: true };
  }
  if (isOpaque) return { mode: 'stream', coding: null, sameLength: true, isOpaque, isPart };
  const isLengthFramed = bodyClassOf(headers) === 'binary';
  if (body.kind === 'length' && body.bytes <= options.bufferBytes) {
    return { mode: 'whole', coding, sameLength: isPart || isLengthFramed, isOpaque, isPart };
  }
  const keepsLength = body.kind === 'length' && coding === null;
  return { mode: 'stream', coding, sameLength: isPart || isLengthFramed || keepsLength, isOpaque, isPart };
}

/** What ends in a body of this type, so that nothing before it may be held back. */
export function boundariesOf(headers: RawHeaders, spansLines: boolean): BoundaryFinder {
  const type = mediaTypeOf(headers);
  if (type === 'text/event-stream') return new EventBoundaries();
  if (GRPC_TYPE.test(type)) return new GrpcBoundaries();
  // Of a value that goes over several lines, the first ones would leave before the last has come.
  return LINE_TYPE.test(type) && !spansLines ? LINE_BOUNDARIES : NO_BOUNDARIES;
}

function withWeakEtag(headers: RawHeaders): RawHeaders {
  const etag = headerValue(headers, 'etag');
  return etag?.startsWith('"') === true ? withHeader(headers, 'ETag', `W/${etag}`) : headers;
}

/**
 * The head of a body that streams. Its digests are gone, since nobody knows yet whether the body will be changed: of a
 * changed one they would be wrong, and would let a guess of the value be confirmed.
 */
export function streamedHead(head: ResponseHead, plan: BodyPlan): ResponseHead {
  const headers = withoutBodyDigests(head.headers);
  return plan.coding === null ? { ...head, headers } : { ...decodedHead(head), body: { kind: 'stream' } };
}

/**
 * The head of a response without a body: what it would be with one. Its digests are gone: they are of a body that would
 * have been looked into, and of one that holds a value they would let a guess of it be confirmed.
 */
export function bodilessHead(head: ResponseHead, plan: BodyPlan): ResponseHead {
  if (plan.coding !== null) return decodedHead(head);
  const headers = withoutBodyDigests(head.headers);
  return headers === head.headers ? head : { ...head, headers };
}

/** The head of an unchanged body. The digests of a part may be of the whole, with values that stand in the other parts. */
export function keptHead(head: ResponseHead, isPart: boolean): ResponseHead {
  return isPart ? { ...head, headers: withoutBodyDigests(head.headers) } : head;
}

/**
 * An interim head, or that of a switch of protocols, has no body: what describes one is of a later answer, and a length is
 * not allowed in it (RFC 9110 section 8.6), where nobody would check that it is one.
 */
export function interimHead<T extends { readonly headers: RawHeaders }>(head: T): T {
  const headers = withoutHeaders(withoutBodyDigests(head.headers), LENGTH_FIELD);
  return headers === head.headers ? head : { ...head, headers };
}

function decodedHead(head: ResponseHead): ResponseHead {
  const kept = withoutHeaders(withoutBodyDigests(head.headers), LENGTH_AND_CODING_FIELDS);
  return { ...head, headers: withWeakEtag(kept) };
}

/** The head of a body that was read whole and had its coding undone, or was changed. */
export function rewrittenHead(head: ResponseHead, bytes: number): ResponseHead {
  const kept = withWeakEtag(withoutHeaders(withoutBodyDigests(head.headers), CODING_FIELDS));
  return { ...head, headers: withHeader(kept, 'Content-Length', String(bytes)), body: { kind: 'length', bytes } };
}
