// The substitution vectors in the shapes that the swap takes.
import { readFileSync } from 'node:fs';
import { compileSwapPlan, type SwapPlan } from '../../../proxy/swap/plan.ts';
import { sessionPolicy, type CredentialInput } from '../../support/policies.ts';

export interface SubstitutionVector {
  readonly name: string;
  readonly credentials: readonly CredentialInput[];
  readonly host: string;
  readonly headers: readonly string[];
  readonly body: Buffer;
  readonly expectedHeaders: readonly string[];
  /** After decoding. */
  readonly expectedBody: Buffer;
}

interface RawVector {
  readonly name: string;
  readonly credentials: readonly {
    readonly secret_name: string;
    readonly placeholder: string;
    readonly value: string;
    readonly allowed_hosts: readonly string[] | null;
    readonly header: boolean;
    readonly body: boolean;
  }[];
  readonly request: { readonly host: string; readonly headers: readonly string[][]; readonly body_base64: string };
  readonly expect: { readonly headers: readonly string[][]; readonly body_decoded_base64: string };
}

export function substitutionVectors(): SubstitutionVector[] {
  const raw = JSON.parse(
    readFileSync(new URL('../../vectors/substitution.json', import.meta.url), 'utf8'),
  ) as readonly RawVector[];
  return raw.map((vector) => ({
    name: vector.name,
    credentials: vector.credentials.map((credential) => ({
      placeholder: credential.placeholder,
      value: credential.value,
      secretName: credential.secret_name,
      hosts: credential.allowed_hosts,
      header: credential.header,
      body: credential.body,
    })),
    host: vector.request.host,
    headers: vector.request.headers.flat(),
    body: Buffer.from(vector.request.body_base64, 'base64'),
    expectedHeaders: vector.expect.headers.flat(),
    expectedBody: Buffer.from(vector.expect.body_decoded_base64, 'base64'),
  }));
}

export function planOfVector(vector: SubstitutionVector): SwapPlan {
  return compileSwapPlan(sessionPolicy(vector.credentials), { host: vector.host, scheme: 'https' }) as SwapPlan;
}
