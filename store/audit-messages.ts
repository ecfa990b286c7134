// What the audit log and its writer thread say to each other.
import type { Retention } from './audit-batches.ts';
import type { AuditBatch } from './audit-rows.ts';

/** What the writer thread is started with. */
export interface AuditWriterData {
  readonly path: string;
}

export type ToWriter =
  | { readonly type: 'batch'; readonly rows: AuditBatch }
  | { readonly type: 'prune'; readonly retention: Retention }
  | { readonly type: 'close' };

export type FromWriter =
  | { readonly type: 'ready' }
  /** The batch is in the database. */
  | { readonly type: 'stored' }
  /** The batch could not be stored and will be tried again. */
  | { readonly type: 'trouble'; readonly code: string }
  | { readonly type: 'pruned'; readonly removed: number; readonly code: string | null };
