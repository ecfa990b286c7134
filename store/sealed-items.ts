// The daemon's own secrets, each sealed under the master key and bound to its name.
import { StartError } from '../model/errors.ts';
import type { SealedItems } from '../model/ports.ts';
import { read, write, type ControlContext } from './control-context.ts';
import { bindItem, seal, unseal, UnsealError } from './seal.ts';

interface SealedItemRow {
  readonly sealing_key: string;
  readonly sealed_value: Buffer;
}

export function createSealedItems(context: ControlContext): SealedItems {
  const { database, keys } = context;
  const select = database.prepare<[string], SealedItemRow>(
    'SELECT sealing_key, sealed_value FROM sealed_items WHERE name = ?',
  );
  const selectNames = database
    .prepare<[object], string>(
      'SELECT name FROM sealed_items WHERE substr(name, 1, length(@prefix)) = @prefix ORDER BY name',
    )
    .pluck();
  const save = database.prepare<[string, string, Buffer]>(
    `INSERT INTO sealed_items (name, sealing_key, sealed_value) VALUES (?, ?, ?)
     ON CONFLICT (name) DO UPDATE SET sealing_key = excluded.sealing_key, sealed_value = excluded.sealed_value`,
  );
  const remove = database.prepare<[string]>('DELETE FROM sealed_items WHERE name = ?');
  return {
    async get(name) {
      const row = await read(context, () => select.get(name));
      if (row === undefined) return null;
      try {
        return unseal(keys, { keyId: row.sealing_key, bytes: row.sealed_value }, bindItem('item', name));
      } catch (error) {
        if (!(error instanceof UnsealError)) throw error;
        throw new StartError(
          `The sealed item ${name} in ${database.name} can't be opened: it was changed outside Keyveil or damaged, or its master key was not given. Restore a backup with keyveil restore.`,
          { cause: error },
        );
      }
    },
    async put(name, value) {
      const sealed = seal(keys, value, bindItem('item', name));
      await write(context, () => save.run(name, sealed.keyId, sealed.bytes));
      context.purge();
    },
    list: (prefix) => read(context, () => selectNames.all({ prefix })),
    async delete(name) {
      await write(context, () => remove.run(name));
      context.purge();
    },
  };
}
