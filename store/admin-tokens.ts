// Scoped tokens of the admin API in SQLite; only their hashes are stored.
import type { AdminScope, AdminToken } from '../model/admin-token.ts';
import { createId } from '../model/ids.ts';
import type { AdminTokenStore } from '../model/ports.ts';
import { notFound, read, write, type ControlContext } from './control-context.ts';
import { createPager, mapPage, type SequencedRow } from './paging.ts';
import { createToken, hashToken } from './session-rows.ts';

const TOKEN_PREFIX = 'kvad_';
// Each note is a durable write, so that it is made once a minute and not with each call.
const USE_NOTED_EVERY_MS = 60_000;

interface AdminTokenRow extends SequencedRow {
  readonly id: string;
  readonly name: string;
  readonly scope: AdminScope;
  readonly token_hash: Buffer;
  readonly created_at: number;
  readonly last_used_at: number | null;
  readonly expires_at: number | null;
}

function toAdminToken(row: AdminTokenRow): AdminToken {
  return {
    id: row.id,
    name: row.name,
    scope: row.scope,
    createdAt: row.created_at,
    lastUsedAt: row.last_used_at,
    expiresAt: row.expires_at,
  };
}

export function createAdminTokenStore(context: ControlContext): AdminTokenStore {
  const { database, clock } = context;
  const page = createPager<AdminTokenRow>(database, { table: 'admin_tokens', archivable: false, byVault: false });
  const insert = database.prepare<[object]>(
    `INSERT INTO admin_tokens (id, name, scope, token_hash, created_at, expires_at)
     VALUES (@id, @name, @scope, @tokenHash, @now, @expiresAt)`,
  );
  const select = database.prepare<[Buffer], AdminTokenRow>('SELECT * FROM admin_tokens WHERE token_hash = ?');
  const remove = database.prepare<[string]>('DELETE FROM admin_tokens WHERE id = ?');
  const noteUse = database.prepare<[number, string]>('UPDATE admin_tokens SET last_used_at = ? WHERE id = ?');

  return {
    create: (input) =>
      write(context, () => {
        const token = createToken(TOKEN_PREFIX);
        const now = clock.now();
        const { name, scope, expiresAt } = input;
        const id = createId('adminToken', now);
        insert.run({ id, name, scope, tokenHash: hashToken(token), now, expiresAt });
        return { adminToken: { id, name, scope, createdAt: now, lastUsedAt: null, expiresAt }, token };
      }),

    list: (query) => read(context, () => mapPage(page(query), toAdminToken)),

    delete: (id) =>
      write(context, () => {
        if (remove.run(id).changes === 0) throw notFound('admin token');
      }),

    async find(token) {
      const now = clock.now();
      const row = await read(context, () => select.get(hashToken(token)));
      if (row === undefined || (row.expires_at !== null && row.expires_at <= now)) return null;
      if (row.last_used_at !== null && now - row.last_used_at < USE_NOTED_EVERY_MS) return toAdminToken(row);
      await write(context, () => noteUse.run(now, row.id));
      return toAdminToken({ ...row, last_used_at: now });
    },
  };
}
