// What a field, a method and a target may hold when they go out: nothing that could break out of its place.
import { KeyveilError } from '../../model/errors.ts';
import type { UpstreamRequest } from '../exchange.ts';

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const TARGET = /^[\x21-\x7e]+$/;
// Anything that is no field-content (RFC 9110 section 5.5): controls but HTAB, and what Latin-1 can't hold.
const NO_FIELD_CONTENT = /[^\t\x20-\x7e\x80-\xff]/;

function refused(what: string): KeyveilError {
  return new KeyveilError('bad_request', `The ${what} of the request holds a character that HTTP can't carry.`);
}

/** Whether both are what RFC 9110 section 5 allows. */
export function isField(name: string, value: string): boolean {
  return TOKEN.test(name) && isFieldContent(value);
}

/** Whether it can stand in one line of a head, as a value or a reason phrase. */
export function isFieldContent(text: string): boolean {
  return !NO_FIELD_CONTENT.test(text);
}

/** Throws `bad_request` unless both are what RFC 9110 section 5 allows. */
export function requireField(name: string, value: string): void {
  if (!isField(name, value)) throw refused('header');
}

/** Throws `bad_request` unless method and target are what RFC 9112 section 3 allows. */
export function requireRequestLine(request: UpstreamRequest): void {
  if (!TOKEN.test(request.method)) throw refused('method');
  if (!TARGET.test(request.target)) throw refused('target');
}
