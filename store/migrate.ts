// Brings a database to this program's schema: numbered files, forward only, each in one transaction and remembered by its SHA-256.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { StartError } from '../model/errors.ts';
import { faultCodeOf, type Database } from './database.ts';

/** One numbered file. */
export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly sql: string;
  readonly sha256: string;
}

interface AppliedRow {
  readonly version: number;
  readonly name: string;
  readonly sha256: string;
}

/** Folders of the migrations; beside store/ in the sources and in the compiled program alike. */
export const CONTROL_MIGRATIONS = fileURLToPath(new URL('../migrations/', import.meta.url));
export const AUDIT_MIGRATIONS = fileURLToPath(new URL('../migrations/audit/', import.meta.url));

const FILE_NAME = /^([0-9]{4})_[a-z0-9_]+\.sql$/;

/** Reads a folder's migrations in order; throws a StartError when a number is missing or a name is wrong. */
export function readMigrations(folder: string): readonly Migration[] {
  const names = readdirSync(folder).filter((name) => name.endsWith('.sql'));
  return names.sort().map((name, index) => {
    const version = Number(FILE_NAME.exec(name)?.[1]);
    if (version !== index + 1)
      throw new StartError(`Migration ${join(folder, name)} is out of sequence. Install Keyveil again.`);
    const sql = readFileSync(join(folder, name), 'utf8');
    return { version, name, sql, sha256: createHash('sha256').update(sql).digest('hex') };
  });
}

function readApplied(database: Database): readonly AppliedRow[] {
  const table = database
    .prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'")
    .get();
  if (table === undefined) return [];
  return database.prepare<[], AppliedRow>('SELECT version, name, sha256 FROM schema_migrations ORDER BY version').all();
}

/** Throws a StartError when the database is newer than the program or a file was changed after it was applied. */
export function requireKnownSchema(database: Database, migrations: readonly Migration[]): readonly Migration[] {
  const applied = readApplied(database);
  for (const row of applied) {
    const known = migrations[row.version - 1];
    if (known === undefined) {
      throw new StartError(
        `The database ${database.name} was made by a newer Keyveil (schema ${row.version}, this program knows ${migrations.length}). Install that version.`,
      );
    }
    if (known.sha256 !== row.sha256) {
      throw new StartError(
        `Migration ${known.name} is not the one that ${database.name} was made with. Install an unchanged Keyveil of this version.`,
      );
    }
  }
  return migrations.slice(applied.length);
}

const CREATE_TABLE = `CREATE TABLE IF NOT EXISTS schema_migrations (
  version INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT`;

function apply(database: Database, migration: Migration, nowMs: number): void {
  const { version, name, sha256, sql } = migration;
  const run = database.transaction(() => {
    database.exec(CREATE_TABLE);
    database.exec(sql);
    database
      .prepare('INSERT INTO schema_migrations (version, name, sha256, applied_at) VALUES (?, ?, ?, ?)')
      .run(version, name, sha256, nowMs);
  });
  try {
    run.immediate();
  } catch (error) {
    throw new StartError(
      `Migration ${name} of ${database.name} failed (${faultCodeOf(error)}); nothing of it was kept.`,
      {
        cause: error,
      },
    );
  }
}

/** Applies what is missing and returns the number of files applied. */
export function migrate(database: Database, folder: string, nowMs: number): number {
  const pending = requireKnownSchema(database, readMigrations(folder));
  for (const migration of pending) apply(database, migration, nowMs);
  return pending.length;
}

/** For processes that join one that has migrated already: throws a StartError when something is missing. */
export function requireCurrentSchema(database: Database, folder: string): void {
  if (requireKnownSchema(database, readMigrations(folder)).length > 0) {
    throw new StartError(
      `The database ${database.name} has an older schema. Start keyveil serve once to bring it up to date.`,
    );
  }
}
