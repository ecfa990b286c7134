// Rotation of the master key: every data key is wrapped anew, in small transactions that can be taken up again after a crash.
import { setImmediate as nextTurn } from 'node:timers/promises';
import { StartError } from '../model/errors.ts';
import { readCanaryKeyId, sealCanary } from './canary.ts';
import { write, type ControlContext } from './control-context.ts';
import { bindRow, type CredentialRow } from './credential-rows.ts';
import { bindItem, rewrap, UnsealError, type Sealed } from './seal.ts';

const ROWS_PER_TRANSACTION = 50;

export interface RewrapResult {
  /** Values that are under the writing key now and were not before. */
  readonly rewrapped: number;
  /** Credentials and sealed items that opened under no key; they stay as they are. */
  readonly unreadable: readonly string[];
}

interface ItemRow {
  readonly name: string;
  readonly sealing_key: string;
  readonly sealed_value: Buffer;
}

function requireAllKeys(context: ControlContext): void {
  const ids = context.database
    .prepare<[], string>(
      `SELECT sealing_key FROM credentials WHERE sealed_value IS NOT NULL AND sealing_key IS NOT NULL
       UNION SELECT sealing_key FROM sealed_items`,
    )
    .pluck()
    .all();
  const unknown = ids.filter((id) => context.keys.find(id) === undefined);
  if (unknown.length === 0) return;
  throw new StartError(
    `Some values are sealed with the master key ${unknown.join(', ')}, which was not given. Give it for reading, then rotate again.`,
  );
}

function tryRewrap(context: ControlContext, sealed: Sealed, associated: Buffer): Sealed | null {
  try {
    return rewrap(context.keys, sealed, associated);
  } catch (error) {
    if (error instanceof UnsealError) return null;
    throw error;
  }
}

interface Step {
  readonly rewrapped: number;
  readonly unreadable: readonly string[];
  /** Where the next step goes on; null at the end. */
  readonly next: number | null;
}

function createCredentialStep(context: ControlContext): (after: number) => Step {
  const { database, keys } = context;
  const select = database.prepare<[number, string, number], CredentialRow>(
    `SELECT * FROM credentials WHERE seq > ? AND sealed_value IS NOT NULL AND sealing_key IS NOT ? ORDER BY seq LIMIT ?`,
  );
  const update = database.prepare<[string, Buffer, number]>(
    'UPDATE credentials SET sealing_key = ?, sealed_value = ? WHERE seq = ?',
  );
  return (after) => {
    const rows = select.all(after, keys.writing.id, ROWS_PER_TRANSACTION);
    const unreadable: string[] = [];
    for (const row of rows) {
      const { sealing_key: keyId, sealed_value: bytes } = row;
      const sealed = keyId === null || bytes === null ? null : tryRewrap(context, { keyId, bytes }, bindRow(row));
      if (sealed === null) unreadable.push(row.id);
      else update.run(sealed.keyId, sealed.bytes, row.seq);
    }
    return { rewrapped: rows.length - unreadable.length, unreadable, next: rows.at(-1)?.seq ?? null };
  };
}

function rewrapItems(context: ControlContext): Omit<Step, 'next'> {
  const { database, keys } = context;
  const rows = database
    .prepare<[string], ItemRow>('SELECT name, sealing_key, sealed_value FROM sealed_items WHERE sealing_key <> ?')
    .all(keys.writing.id);
  const update = database.prepare<[string, Buffer, string]>(
    'UPDATE sealed_items SET sealing_key = ?, sealed_value = ? WHERE name = ?',
  );
  const unreadable: string[] = [];
  for (const row of rows) {
    const sealed = tryRewrap(context, { keyId: row.sealing_key, bytes: row.sealed_value }, bindItem('item', row.name));
    if (sealed === null) unreadable.push(row.name);
    else update.run(sealed.keyId, sealed.bytes, row.name);
  }
  return { rewrapped: rows.length - unreadable.length, unreadable };
}

/**
 * Wraps every value under the ring's writing key; the ring must also hold the keys used before. The canary comes last,
 * so that until then a start demands the earlier key too. Rejects with a StartError when a key is missing.
 */
export async function rewrapAll(context: ControlContext): Promise<RewrapResult> {
  requireAllKeys(context);
  const step = createCredentialStep(context);
  const unreadable: string[] = [];
  let rewrapped = 0;
  let after: number | null = 0;
  while (after !== null) {
    const from: number = after;
    const done: Step = await write(context, () => step(from));
    rewrapped += done.rewrapped;
    unreadable.push(...done.unreadable);
    after = done.next;
    await nextTurn();
  }
  const items = await write(context, () => rewrapItems(context));
  await write(context, () => {
    if (readCanaryKeyId(context.database) !== context.keys.writing.id) sealCanary(context.database, context.keys);
  });
  context.purge();
  return { rewrapped: rewrapped + items.rewrapped, unreadable: [...unreadable, ...items.unreadable] };
}
