// Fields that hold a digest of the body: computed anew when a body was swapped, or taken out.
import { createHash, type Hash } from 'node:crypto';
import { withoutHeaders, type RawHeaders } from '../exchange.ts';

/** RFC 1864, RFC 3230, and the two of RFC 9530; lower case. */
const BODY_DIGEST_NAMES: ReadonlySet<string> = new Set(['content-md5', 'digest', 'content-digest', 'repr-digest']);

/** Names of RFC 3230 and RFC 9530 → those of the hash here. */
const HASHES: ReadonlyMap<string, string> = new Map([
  ['md5', 'md5'],
  ['sha', 'sha1'],
  ['sha-256', 'sha256'],
  ['sha-512', 'sha512'],
]);

/** Whether any field would have to change with the body. */
export function holdsBodyDigest(headers: RawHeaders): boolean {
  return headers.some((name, index) => index % 2 === 0 && BODY_DIGEST_NAMES.has(name.toLowerCase()));
}

export function withoutBodyDigests(headers: RawHeaders): RawHeaders {
  return withoutHeaders(headers, BODY_DIGEST_NAMES);
}

interface Member {
  readonly name: string;
  readonly hash: string;
}

/** A field's members whose algorithms are known. */
function membersOf(lowerName: string, value: string): Member[] {
  if (lowerName === 'content-md5') return [{ name: '', hash: 'md5' }];
  return value.split(',').flatMap((member) => {
    const name = member.slice(0, Math.max(0, member.indexOf('='))).trim();
    const hash = HASHES.get(name.toLowerCase());
    return hash === undefined ? [] : [{ name, hash }];
  });
}

function writeMembers(lowerName: string, members: readonly Member[], digest: (hash: string) => string): string {
  switch (lowerName) {
    case 'content-md5':
      return digest('md5');
    case 'digest':
      return members.map(({ name, hash }) => `${name}=${digest(hash)}`).join(',');
    default:
      return members.map(({ name, hash }) => `${name}=:${digest(hash)}:`).join(', ');
  }
}

/**
 * The fields with digests of the new body, which is read as it is sent (with its content coding: a request's content is
 * its representation, too). A digest by an unknown algorithm is taken out.
 */
export async function withBodyDigests(headers: RawHeaders, body: AsyncIterable<Buffer>): Promise<RawHeaders> {
  const hashes = new Map<string, Hash>();
  const fields: { name: string; value: string; members: Member[] | null }[] = [];
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] as string;
    const value = headers[index + 1] as string;
    const lowerName = name.toLowerCase();
    const members = BODY_DIGEST_NAMES.has(lowerName) ? membersOf(lowerName, value) : null;
    for (const { hash } of members ?? []) hashes.set(hash, createHash(hash));
    if (members === null || members.length > 0) fields.push({ name, value, members });
  }
  for await (const piece of body) for (const hash of hashes.values()) hash.update(piece);
  const digests = new Map([...hashes].map(([name, hash]) => [name, hash.digest('base64')]));
  const digest = (hash: string): string => digests.get(hash) as string;
  return fields.flatMap(({ name, value, members }) => [
    name,
    members === null ? value : writeMembers(name.toLowerCase(), members, digest),
  ]);
}
