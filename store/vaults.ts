// Vaults in SQLite.
import { createId } from '../model/ids.ts';
import type { VaultStore } from '../model/ports.ts';
import { patchMetadata, type Vault } from '../model/vault.ts';
import { parseMetadata } from './codecs.ts';
import { notFound, read, requireActive, write, type ControlContext } from './control-context.ts';
import { createPager, mapPage, type SequencedRow } from './paging.ts';

export interface VaultRow extends SequencedRow {
  readonly id: string;
  readonly display_name: string;
  readonly metadata: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly archived_at: number | null;
}

function toVault(row: VaultRow): Vault {
  return {
    id: row.id,
    displayName: row.display_name,
    metadata: parseMetadata(row.metadata),
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    archivedAt: row.archived_at,
  };
}

function prepareStatements({ database }: ControlContext) {
  return {
    insert: database.prepare<[object]>(
      `INSERT INTO vaults (id, display_name, metadata, created_at, updated_at)
       VALUES (@id, @displayName, @metadata, @now, @now)`,
    ),
    select: database.prepare<[string], VaultRow>('SELECT * FROM vaults WHERE id = ?'),
    update: database.prepare<[object]>(
      'UPDATE vaults SET display_name = @displayName, metadata = @metadata, updated_at = @now WHERE id = @id',
    ),
    archive: database.prepare<[object]>('UPDATE vaults SET archived_at = @now, updated_at = @now WHERE id = @id'),
    archiveCredentials: database.prepare<[object]>(
      `UPDATE credentials SET sealed_value = NULL, sealing_key = NULL, archived_at = @now, updated_at = @now
       WHERE vault_id = @id AND archived_at IS NULL`,
    ),
    delete: database.prepare<[string]>('DELETE FROM vaults WHERE id = ?'),
  };
}

export function createVaultStore(context: ControlContext): VaultStore {
  const statements = prepareStatements(context);
  const page = createPager<VaultRow>(context.database, { table: 'vaults', archivable: true, byVault: false });

  function requireRow(id: string): VaultRow {
    const row = statements.select.get(id);
    if (row === undefined) throw notFound('vault');
    return row;
  }

  return {
    create: (input) =>
      write(context, () => {
        const now = context.clock.now();
        const id = createId('vault', now);
        statements.insert.run({ id, displayName: input.displayName, metadata: JSON.stringify(input.metadata), now });
        return toVault(requireRow(id));
      }),

    get: (id) => read(context, () => toVault(requireRow(id))),

    update: (id, patch) =>
      write(context, () => {
        const row = requireRow(id);
        requireActive('vault', row);
        const metadata = JSON.stringify(patchMetadata(parseMetadata(row.metadata), patch.metadata ?? {}));
        const displayName = patch.displayName ?? row.display_name;
        statements.update.run({ id, displayName, metadata, now: context.clock.now() });
        return toVault(requireRow(id));
      }),

    list: (query) => read(context, () => mapPage(page(query), toVault)),

    async archive(id) {
      const vault = await write(context, () => {
        if (requireRow(id).archived_at === null) {
          const values = { id, now: context.clock.now() };
          statements.archive.run(values);
          statements.archiveCredentials.run(values);
        }
        return toVault(requireRow(id));
      });
      context.purge();
      return vault;
    },

    async delete(id) {
      await write(context, () => {
        if (statements.delete.run(id).changes === 0) throw notFound('vault');
      });
      context.purge();
    },
  };
}
