// Decides from a response's head how its body is veiled, and what the head becomes.
import { type RawHeaders, type ResponseHead, headerValue, withHeader, withoutHeaders } from '../exchange.ts';
import { type BoundaryFinder, EventBoundaries, GrpcBoundaries, LINE_BOUNDARIES, NO_BOUNDARIES } from './boundaries.ts';
import { codingOf, type ContentCoding } from '../swap/content-coding.ts';

/** How a body is treated. */
export interface BodyPlan {
  /**
   * `none`: there is no body. `pass`: it can't be looked into. `whole`: it is read whole while there is room for it.
   * `stream`: it is veiled as it comes.
   */
  readonly mode: 'none' | 'pass' | 'whole' | 'stream';
  /** The coding that is undone; null for none. */
  readonly coding: ContentCoding | null;
  /** What is found is overwritten with `*`: a length was stated that can't be changed, or stands in the body. */
  readonly sameLength: boolean;
}

export interface PlanOptions {
  readonly method: string;
  /** Bytes up to which a body of known length is read whole. */
  readonly bufferBytes: number;
}

/** Body digests (RFC 9530, RFC 3230, RFC 1864): of a changed body they are wrong, and they would confirm a guess of a value. */
const DIGESTS: ReadonlySet<string> = new Set(['content-md5', 'digest', 'content-digest', 'repr-digest']);
const REWRITTEN_FIELDS: ReadonlySet<string> = new Set([...DIGESTS, 'content-encoding']);
const CODING_FIELDS: ReadonlySet<string> = new Set([...DIGESTS, 'content-encoding', 'content-length']);

const GRPC_TYPE = /^application\/grpc(-web)?(\+|$)/;
const LENGTH_FRAMED_TYPE =
  /^application\/(grpc|cbor|msgpack|x-msgpack|vnd\.msgpack|vnd\.amazon\.eventstream)|protobuf|\+(cbor|msgpack|proto)$/;
const LINE_TYPE = /^(text\/plain|application\/(x-)?(ndjson|jsonl|jsonlines|json-seq))$/;

function mediaTypeOf(headers: RawHeaders): string {
  return (headerValue(headers, 'content-type') ?? '').replace(/;.*$/s, '').trim().toLowerCase();
}

/** How the body of a response is veiled. */
export function planBody(head: ResponseHead, options: PlanOptions): BodyPlan {
  const { status, body, headers } = head;
  const coding = codingOf(headers);
  const isPart = status === 206;
  if (coding === 'unsupported' || (isPart && coding !== null)) return { mode: 'pass', coding: null, sameLength: false };
  if (options.method === 'HEAD' || status === 204 || status === 304 || body.kind === 'none') {
    return { mode: 'none', coding, sameLength: false };
  }
  const isLengthFramed = LENGTH_FRAMED_TYPE.test(mediaTypeOf(headers));
  if (body.kind === 'length' && body.bytes <= options.bufferBytes) {
    return { mode: 'whole', coding, sameLength: isPart || isLengthFramed };
  }
  const keepsLength = body.kind === 'length' && coding === null;
  return { mode: 'stream', coding, sameLength: isPart || isLengthFramed || keepsLength };
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

/** The head of a body that streams. Its digests are gone, since nobody knows yet whether the body will be changed. */
export function streamedHead(head: ResponseHead, plan: BodyPlan): ResponseHead {
  if (plan.coding === null) return { ...head, headers: withoutHeaders(head.headers, DIGESTS) };
  const headers = withWeakEtag(withoutHeaders(head.headers, CODING_FIELDS));
  return { ...head, headers, body: { kind: 'stream' } };
}

/** The head of a response without a body: what it would be with one. */
export function bodilessHead(head: ResponseHead, plan: BodyPlan): ResponseHead {
  if (plan.coding === null) return head;
  return { ...head, headers: withWeakEtag(withoutHeaders(head.headers, CODING_FIELDS)) };
}

/** The head of a body that was read whole and had its coding undone, or was changed. */
export function rewrittenHead(head: ResponseHead, plan: BodyPlan, bytes: number): ResponseHead {
  const kept = withoutHeaders(head.headers, plan.coding === null ? DIGESTS : REWRITTEN_FIELDS);
  return {
    ...head,
    headers: withHeader(withWeakEtag(kept), 'Content-Length', String(bytes)),
    body: { kind: 'length', bytes },
  };
}

/** Trailers of a body that was changed. */
export function withoutDigests(fields: RawHeaders): RawHeaders {
  return withoutHeaders(fields, DIGESTS);
}
