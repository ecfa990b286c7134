// Sessions in SQLite: a session is mounted and stored in one transaction, or not at all.
import { KeyveilError } from '../model/errors.ts';
import { createId } from '../model/ids.ts';
import { decideMounts, type MountCredential, type MountResult } from '../model/mount.ts';
import type { EnvironmentNetworking } from '../model/networking.ts';
import type { SessionSettings, SessionStore } from '../model/ports.ts';
import type { NewSession } from '../model/session.ts';
import { patchMetadata } from '../model/vault.ts';
import { parseEnvironmentNetworking, parseMetadata } from './codecs.ts';
import { notFound, read, requireActive, write, type ControlContext } from './control-context.ts';
import { toCredential, type CredentialRow } from './credential-rows.ts';
import { DENY_ALL, type EnvironmentRow } from './environments.ts';
import { createPager, mapPage } from './paging.ts';
import { sealedByteLength } from './seal.ts';
import { createToken, hashToken, toSession, type SessionRow } from './session-rows.ts';
import type { VaultRow } from './vaults.ts';

function prepareStatements({ database }: ControlContext) {
  const set = (assignment: string) =>
    database.prepare<[object]>(`UPDATE sessions SET ${assignment}, updated_at = @now WHERE id = @id`);
  return {
    insert: database.prepare<[object]>(
      `INSERT INTO sessions (id, token_hash, vault_ids, environment_id, title, metadata, ca_directory, mounts, warnings,
         denial_limit, created_at, updated_at, expires_at)
       VALUES (@id, @tokenHash, @vaultIds, @environmentId, @title, @metadata, @caDirectory, @mounts, @warnings,
         @denialLimit, @now, @now, @expiresAt)`,
    ),
    select: database.prepare<[string], SessionRow>('SELECT * FROM sessions WHERE id = ?'),
    vault: database.prepare<[string], VaultRow>('SELECT * FROM vaults WHERE id = ?'),
    environment: database.prepare<[string], EnvironmentRow>('SELECT * FROM environments WHERE id = ?'),
    credentials: database.prepare<[string], CredentialRow>(
      'SELECT * FROM credentials WHERE vault_id = ? AND archived_at IS NULL ORDER BY seq',
    ),
    update: set('title = @title, metadata = @metadata, expires_at = @expiresAt'),
    archive: set('archived_at = @now'),
    setToken: set('token_hash = @tokenHash'),
    suspend: set('suspended_at = @now, suspension_reason = @reason'),
    resume: set('suspended_at = NULL, suspension_reason = NULL'),
  };
}

type Statements = ReturnType<typeof prepareStatements>;

function requireSession(statements: Statements, id: string): SessionRow {
  const row = statements.select.get(id);
  if (row === undefined) throw notFound('session');
  return row;
}

function readNetworking(statements: Statements, input: NewSession, settings: SessionSettings): EnvironmentNetworking {
  if (input.environmentId === null) return settings.defaultNetworking;
  const row = statements.environment.get(input.environmentId);
  if (row === undefined) throw notFound('environment', 'environment_id');
  if (row.archived_at !== null) {
    throw new KeyveilError('environment_archived', 'The environment is archived. Choose another one.', {
      param: 'environment_id',
    });
  }
  return parseEnvironmentNetworking(row.networking) ?? DENY_ALL;
}

function toMountCredential(row: CredentialRow): MountCredential {
  const valueByteLength = row.sealed_value === null ? 0 : sealedByteLength(row.sealed_value);
  return { ...toCredential(row, null), valueByteLength };
}

function readVaults(statements: Statements, vaultIds: readonly string[]) {
  return vaultIds.map((id, index) => {
    const param = `vault_ids.${index}`;
    const row = statements.vault.get(id);
    if (row === undefined) throw notFound('vault', param);
    if (row.archived_at !== null) {
      throw new KeyveilError('vault_archived', `Vault ${row.id} is archived. Leave it out.`, { param });
    }
    return { id, credentials: statements.credentials.all(id).map(toMountCredential) };
  });
}

interface SessionInsert {
  readonly input: NewSession;
  readonly mounted: MountResult;
  readonly token: string;
}

function insert(context: ControlContext, statements: Statements, { input, mounted, token }: SessionInsert): string {
  const now = context.clock.now();
  const id = createId('session', now);
  statements.insert.run({
    id,
    tokenHash: hashToken(token),
    vaultIds: JSON.stringify(input.vaultIds),
    environmentId: input.environmentId,
    title: input.title,
    metadata: JSON.stringify(input.metadata),
    caDirectory: input.caDirectory,
    mounts: JSON.stringify(mounted.mounts),
    warnings: JSON.stringify(mounted.warnings),
    denialLimit: input.denialLimit,
    expiresAt: input.expiresAt,
    now,
  });
  return id;
}

export function createSessionStore(context: ControlContext): SessionStore {
  const statements = prepareStatements(context);
  const page = createPager<SessionRow>(context.database, { table: 'sessions', archivable: true, byVault: false });

  function change(id: string, apply: (row: SessionRow, now: number) => void) {
    return write(context, () => {
      const row = requireSession(statements, id);
      requireActive('session', row);
      apply(row, context.clock.now());
      return toSession(requireSession(statements, id));
    });
  }

  return {
    create: (input, settings) =>
      write(context, () => {
        const networking = readNetworking(statements, input, settings);
        const mounted = decideMounts({ vaults: readVaults(statements, input.vaultIds), networking, settings });
        const token = createToken();
        return {
          session: toSession(requireSession(statements, insert(context, statements, { input, mounted, token }))),
          token,
        };
      }),

    get: (id) => read(context, () => toSession(requireSession(statements, id))),

    update: (id, patch) =>
      change(id, (row, now) => {
        statements.update.run({
          id,
          title: patch.title === undefined ? row.title : patch.title,
          metadata: JSON.stringify(patchMetadata(parseMetadata(row.metadata), patch.metadata ?? {})),
          expiresAt: patch.expiresAt === undefined ? row.expires_at : patch.expiresAt,
          now,
        });
      }),

    list: (query) => read(context, () => mapPage(page(query), toSession)),

    archive: (id) =>
      write(context, () => {
        const row = requireSession(statements, id);
        if (row.archived_at === null) statements.archive.run({ id, now: context.clock.now() });
        return toSession(requireSession(statements, id));
      }),

    async rotateToken(id) {
      const token = createToken();
      const session = await change(id, (_row, now) =>
        statements.setToken.run({ id, tokenHash: hashToken(token), now }),
      );
      return { session, token };
    },

    // The first reason stays: what came after was refused because of it.
    suspend: (id, reason) =>
      change(id, (row, now) => {
        if (row.suspended_at === null) statements.suspend.run({ id, reason, now });
      }),

    resume: (id) =>
      change(id, (row, now) => {
        if (row.suspended_at === null) {
          throw new KeyveilError(
            'session_not_suspended',
            'The session is not suspended, so there is nothing to resume.',
          );
        }
        statements.resume.run({ id, now });
      }),
  };
}
