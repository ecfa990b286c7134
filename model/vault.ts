// Vaults, metadata and pages: the plain records of the control plane.
import { KeyveilError } from './errors.ts';
import { METADATA_PAIRS_MAX } from './limits.ts';

/** Up to 16 pairs of short strings that an API user keeps with an object. */
export type Metadata = Readonly<Record<string, string>>;

/** A string sets a key, null deletes it. */
export type MetadataPatch = Readonly<Record<string, string | null>>;

/** A named set of credentials. All times are milliseconds since the epoch, UTC. */
export interface Vault {
  readonly id: string;
  readonly displayName: string;
  readonly metadata: Metadata;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly archivedAt: number | null;
}

/** What a list is asked for. `after` is the id of the last row of the page before, as the store gave it. */
export interface PageQuery {
  readonly limit: number;
  readonly after: string | null;
  readonly includeArchived: boolean;
}

/** Newest first. `next` is null on the last page. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly next: string | null;
}

/** Applies a metadata patch: a string sets, null deletes, other keys stay. Throws `invalid_field` past 16 pairs. */
export function patchMetadata(current: Metadata, patch: MetadataPatch): Metadata {
  const merged = new Map(Object.entries(current));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) merged.delete(key);
    else merged.set(key, value);
  }
  if (merged.size > METADATA_PAIRS_MAX) {
    throw new KeyveilError('invalid_field', `metadata must have at most ${METADATA_PAIRS_MAX} pairs.`, {
      param: 'metadata',
    });
  }
  return Object.fromEntries(merged);
}
