// Environments in SQLite.
import { mergeNetworking, type Environment } from '../model/environment.ts';
import { KeyveilError } from '../model/errors.ts';
import { createId } from '../model/ids.ts';
import type { EnvironmentNetworking } from '../model/networking.ts';
import type { EnvironmentStore } from '../model/ports.ts';
import { patchMetadata } from '../model/vault.ts';
import { formatEnvironmentNetworking, parseEnvironmentNetworking, parseMetadata, parseTexts } from './codecs.ts';
import { notFound, read, requireActive, write, type ControlContext } from './control-context.ts';
import { createPager, mapPage, type SequencedRow } from './paging.ts';

export interface EnvironmentRow extends SequencedRow {
  readonly id: string;
  readonly name: string;
  readonly description: string | null;
  readonly networking: string;
  readonly allowed_private_cidrs: string;
  readonly metadata: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly archived_at: number | null;
}

/** What an environment that can't be read admits. */
export const DENY_ALL: EnvironmentNetworking = { type: 'limited', allowedHosts: [], allowPackageManagers: false };

function toEnvironment(row: EnvironmentRow): Environment {
  return {
    id: row.id,
    name: row.name,
    description: row.description,
    networking: parseEnvironmentNetworking(row.networking) ?? DENY_ALL,
    allowedPrivateCidrs: parseTexts(row.allowed_private_cidrs) ?? [],
    metadata: parseMetadata(row.metadata),
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    archivedAt: row.archived_at,
  };
}

function prepareStatements({ database }: ControlContext) {
  return {
    insert: database.prepare<[object]>(
      `INSERT INTO environments (id, name, description, networking, allowed_private_cidrs, metadata, created_at, updated_at)
       VALUES (@id, @name, @description, @networking, @cidrs, @metadata, @now, @now)`,
    ),
    select: database.prepare<[string], EnvironmentRow>('SELECT * FROM environments WHERE id = ?'),
    update: database.prepare<[object]>(
      `UPDATE environments SET name = @name, description = @description, networking = @networking,
         allowed_private_cidrs = @cidrs, metadata = @metadata, updated_at = @now WHERE id = @id`,
    ),
    archive: database.prepare<[object]>('UPDATE environments SET archived_at = @now, updated_at = @now WHERE id = @id'),
    isInUse: database
      .prepare<[string, number], number>(
        `SELECT 1 FROM sessions WHERE environment_id = ? AND archived_at IS NULL
           AND (expires_at IS NULL OR expires_at > ?) LIMIT 1`,
      )
      .pluck(),
    delete: database.prepare<[string]>('DELETE FROM environments WHERE id = ?'),
  };
}

function toColumns(environment: Omit<Environment, 'id' | 'createdAt' | 'updatedAt' | 'archivedAt'>) {
  return {
    name: environment.name,
    description: environment.description,
    networking: formatEnvironmentNetworking(environment.networking),
    cidrs: JSON.stringify(environment.allowedPrivateCidrs),
    metadata: JSON.stringify(environment.metadata),
  };
}

export function createEnvironmentStore(context: ControlContext): EnvironmentStore {
  const statements = prepareStatements(context);
  const page = createPager<EnvironmentRow>(context.database, {
    table: 'environments',
    archivable: true,
    byVault: false,
  });

  function requireRow(id: string): EnvironmentRow {
    const row = statements.select.get(id);
    if (row === undefined) throw notFound('environment');
    return row;
  }

  return {
    create: (input) =>
      write(context, () => {
        const now = context.clock.now();
        const id = createId('environment', now);
        statements.insert.run({ id, ...toColumns(input), now });
        return toEnvironment(requireRow(id));
      }),

    get: (id) => read(context, () => toEnvironment(requireRow(id))),

    update: (id, patch) =>
      write(context, () => {
        const row = requireRow(id);
        requireActive('environment', row);
        const before = toEnvironment(row);
        const columns = toColumns({
          name: patch.name ?? before.name,
          description: patch.description === undefined ? before.description : patch.description,
          networking: mergeNetworking(before.networking, patch.networking ?? {}),
          allowedPrivateCidrs: patch.allowedPrivateCidrs ?? before.allowedPrivateCidrs,
          metadata: patchMetadata(before.metadata, patch.metadata ?? {}),
        });
        statements.update.run({ id, ...columns, now: context.clock.now() });
        return toEnvironment(requireRow(id));
      }),

    list: (query) => read(context, () => mapPage(page(query), toEnvironment)),

    archive: (id) =>
      write(context, () => {
        if (requireRow(id).archived_at === null) statements.archive.run({ id, now: context.clock.now() });
        return toEnvironment(requireRow(id));
      }),

    delete: (id) =>
      write(context, () => {
        requireRow(id);
        if (statements.isInUse.get(id, context.clock.now()) !== undefined) {
          throw new KeyveilError(
            'environment_in_use',
            'An active session uses this environment. Archive its sessions first.',
          );
        }
        statements.delete.run(id);
      }),
  };
}
