// Vaults, metadata and pages: the plain records of the control plane.

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

/** Applies a metadata patch: a string sets, null deletes, other keys stay. */
export function patchMetadata(current: Metadata, patch: MetadataPatch): Metadata {
  const merged = new Map(Object.entries(current));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) merged.delete(key);
    else merged.set(key, value);
  }
  return Object.fromEntries(merged);
}
