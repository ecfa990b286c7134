// Credentials in SQLite: values are sealed on the way in and never leave by this interface.
import type { Credential, CredentialPatch, NewCredential } from '../model/credential.ts';
import { KeyveilError } from '../model/errors.ts';
import { createId } from '../model/ids.ts';
import { CREDENTIALS_PER_VAULT_MAX } from '../model/limits.ts';
import { createPlaceholder } from '../model/placeholder.ts';
import type { CredentialStore } from '../model/ports.ts';
import { patchMetadata } from '../model/vault.ts';
import { formatCredentialNetworking, parseMetadata } from './codecs.ts';
import { notFound, read, requireActive, write, type ControlContext } from './control-context.ts';
import {
  bindRow,
  locationOf,
  openRow,
  requireHeaderSafe,
  toCredential,
  type BoundColumns,
  type CredentialRow,
} from './credential-rows.ts';
import { createPager, mapPage } from './paging.ts';
import { seal } from './seal.ts';

function prepareStatements({ database }: ControlContext) {
  return {
    insert: database.prepare<[object]>(
      `INSERT INTO credentials (id, vault_id, display_name, secret_name, placeholder, inject_header, inject_body, networking,
         secret_version, sealing_key, sealed_value, metadata, created_at, updated_at)
       VALUES (@id, @vault_id, @display_name, @secret_name, @placeholder, @inject_header, @inject_body, @networking,
         @secret_version, @sealing_key, @sealed_value, @metadata, @now, @now)`,
    ),
    select: database.prepare<[string, string], CredentialRow>(
      'SELECT * FROM credentials WHERE id = ? AND vault_id = ?',
    ),
    vault: database.prepare<[string], { archived_at: number | null }>('SELECT archived_at FROM vaults WHERE id = ?'),
    activeNames: database
      .prepare<[string], string>('SELECT secret_name FROM credentials WHERE vault_id = ? AND archived_at IS NULL')
      .pluck(),
    update: database.prepare<[object]>(
      `UPDATE credentials SET display_name = @display_name, metadata = @metadata, inject_header = @inject_header,
         inject_body = @inject_body, networking = @networking, secret_version = @secret_version,
         rotated_at = @rotated_at, sealing_key = @sealing_key, sealed_value = @sealed_value, updated_at = @now
       WHERE id = @id`,
    ),
    archive: database.prepare<[object]>(
      `UPDATE credentials SET sealed_value = NULL, sealing_key = NULL, archived_at = @now, updated_at = @now WHERE id = @id`,
    ),
    delete: database.prepare<[string, string]>('DELETE FROM credentials WHERE id = ? AND vault_id = ?'),
  };
}

type Statements = ReturnType<typeof prepareStatements>;

function requireRow(statements: Statements, vaultId: string, id: string): CredentialRow {
  const row = statements.select.get(id, vaultId);
  if (row !== undefined) return row;
  throw notFound(statements.vault.get(vaultId) === undefined ? 'vault' : 'credential');
}

function requireRoom(statements: Statements, input: NewCredential): void {
  const vault = statements.vault.get(input.vaultId);
  if (vault === undefined) throw notFound('vault');
  requireActive('vault', vault);
  const names = statements.activeNames.all(input.vaultId);
  if (names.includes(input.secretName)) {
    throw new KeyveilError(
      'secret_name_taken',
      'An active credential of this vault has this secret_name. Rotate that one, or archive it first.',
      { param: 'auth.secret_name' },
    );
  }
  if (names.length >= CREDENTIALS_PER_VAULT_MAX) {
    throw new KeyveilError(
      'vault_full',
      `A vault holds at most ${CREDENTIALS_PER_VAULT_MAX} active credentials. Archive one, or use another vault.`,
    );
  }
}

function insert(context: ControlContext, statements: Statements, input: NewCredential): string {
  requireRoom(statements, input);
  requireHeaderSafe(input.secretValue, input.injectionLocation.header);
  const now = context.clock.now();
  const row: BoundColumns = {
    id: createId('credential', now),
    vault_id: input.vaultId,
    secret_name: input.secretName,
    placeholder: createPlaceholder(input.placeholderPrefix),
    inject_header: Number(input.injectionLocation.header),
    inject_body: Number(input.injectionLocation.body),
    networking: formatCredentialNetworking(input.networking),
    secret_version: 1,
  };
  const sealed = seal(context.keys, input.secretValue, bindRow(row));
  statements.insert.run({
    ...row,
    display_name: input.displayName,
    metadata: JSON.stringify(input.metadata),
    sealing_key: sealed.keyId,
    sealed_value: sealed.bytes,
    now,
  });
  return row.id;
}

/** The bound columns as an update leaves them. */
function patchBound(row: CredentialRow, patch: CredentialPatch): BoundColumns {
  const before = locationOf(row);
  if (before === null || row.placeholder === null) {
    throw new KeyveilError(
      'credential_not_mountable',
      `Credential ${row.id} (${row.secret_name}) has no placeholder or injection location and can't be updated. Archive it and create it again.`,
    );
  }
  const location = { ...before, ...patch.injectionLocation };
  if (!location.header && !location.body) {
    throw new KeyveilError('invalid_field', 'header and body would both be false, so the value could never be used.', {
      param: 'auth.injection_location',
    });
  }
  return {
    ...row,
    inject_header: Number(location.header),
    inject_body: Number(location.body),
    networking: patch.networking === undefined ? row.networking : formatCredentialNetworking(patch.networking),
    secret_version: row.secret_version + (patch.secretValue === undefined ? 0 : 1),
  };
}

/** Whether sealed bytes were replaced. */
function applyPatch(
  context: ControlContext,
  statements: Statements,
  change: { row: CredentialRow; patch: CredentialPatch },
): boolean {
  const { row, patch } = change;
  requireActive('credential', row);
  const bound = patchBound(row, patch);
  const associated = bindRow(bound);
  const isSealedAnew = !associated.equals(bindRow(row));
  const now = context.clock.now();
  let sealed: { sealing_key: string | null; sealed_value: Buffer | null } = row;
  if (isSealedAnew) {
    const value = patch.secretValue ?? openRow(context.keys, row);
    requireHeaderSafe(value, bound.inject_header === 1);
    const { keyId, bytes } = seal(context.keys, value, associated);
    sealed = { sealing_key: keyId, sealed_value: bytes };
    if (patch.secretValue === undefined) value.wipe();
  }
  statements.update.run({
    id: row.id,
    inject_header: bound.inject_header,
    inject_body: bound.inject_body,
    networking: bound.networking,
    secret_version: bound.secret_version,
    display_name: patch.displayName === undefined ? row.display_name : patch.displayName,
    metadata: JSON.stringify(patchMetadata(parseMetadata(row.metadata), patch.metadata ?? {})),
    rotated_at: patch.secretValue === undefined ? row.rotated_at : now,
    sealing_key: sealed.sealing_key,
    sealed_value: sealed.sealed_value,
    now,
  });
  return isSealedAnew;
}

export function createCredentialStore(context: ControlContext): CredentialStore {
  const statements = prepareStatements(context);
  const page = createPager<CredentialRow>(context.database, { table: 'credentials', archivable: true, byVault: true });
  const present = (row: CredentialRow): Credential => toCredential(row, context.lastUsedAt(row.id));

  return {
    create: (input) =>
      write(context, () => present(requireRow(statements, input.vaultId, insert(context, statements, input)))),

    get: (vaultId, id) => read(context, () => present(requireRow(statements, vaultId, id))),

    async update(vaultId, id, patch) {
      const result = await write(context, () => {
        const replaced = applyPatch(context, statements, { row: requireRow(statements, vaultId, id), patch });
        return { replaced, credential: present(requireRow(statements, vaultId, id)) };
      });
      if (result.replaced) context.purge();
      return result.credential;
    },

    list: (vaultId, query) =>
      read(context, () => {
        if (statements.vault.get(vaultId) === undefined) throw notFound('vault');
        return mapPage(page(query, vaultId), present);
      }),

    async archive(vaultId, id) {
      const credential = await write(context, () => {
        const row = requireRow(statements, vaultId, id);
        if (row.archived_at === null) statements.archive.run({ id, now: context.clock.now() });
        return present(requireRow(statements, vaultId, id));
      });
      context.purge();
      return credential;
    },

    async delete(vaultId, id) {
      await write(context, () => {
        requireRow(statements, vaultId, id);
        statements.delete.run(id, vaultId);
      });
      context.purge();
    },
  };
}
