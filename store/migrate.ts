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

/** Lines as `sha256sum *.sql` prints them; a migration that is added is added here, too. */
const SUMS_NAME = 'SHA256SUMS';
const SUM_LINE = /^([0-9a-f]{64}) {2}(\S+)$/;

function damagedFolder(folder: string, what: string, cause?: unknown): StartError {
  return new StartError(`The migrations in ${folder} are damaged: ${what}. Install Keyveil again.`, { cause });
}

function readFile(folder: string, name: string): Buffer {
  try {
    return readFileSync(join(folder, name));
  } catch (error) {
    throw damagedFolder(folder, `${name} can't be read (${faultCodeOf(error)})`, error);
  }
}

/**
 * Reads a folder's migrations in order: those that its list of sums names, as they are named there. Throws a StartError
 * when one is missing, was changed or cut, or does not belong there.
 */
export function readMigrations(folder: string): readonly Migration[] {
  const lines = readFile(folder, SUMS_NAME).toString('latin1').split('\n');
  if (lines.pop() !== '') throw damagedFolder(folder, `${SUMS_NAME} is cut short`);
  const migrations = lines.map((line, index) => {
    const [, sum, name = ''] = SUM_LINE.exec(line) ?? [];
    const version = Number(FILE_NAME.exec(name)?.[1]);
    if (version !== index + 1) throw damagedFolder(folder, `line ${index + 1} of ${SUMS_NAME} is out of sequence`);
    const bytes = readFile(folder, name);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    if (sha256 !== sum) throw damagedFolder(folder, `${name} is not as it was released`);
    return { version, name, sql: bytes.toString('utf8'), sha256 };
  });
  const names = new Set(migrations.map(({ name }) => name));
  const stranger = readdirSync(folder).find((name) => name.endsWith('.sql') && !names.has(name));
  if (stranger !== undefined) throw damagedFolder(folder, `${stranger} is not in ${SUMS_NAME}`);
  if (migrations.length === 0) throw damagedFolder(folder, `${SUMS_NAME} names none`);
  return migrations;
}

function damagedHistory(database: Database, cause?: unknown): StartError {
  return new StartError(
    `The history of ${database.name} (schema_migrations) is damaged or was edited. Restore a backup with keyveil restore.`,
    { cause },
  );
}

function readApplied(database: Database): readonly AppliedRow[] {
  const found = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'").get();
  if (found === undefined) return [];
  try {
    return database
      .prepare<[], AppliedRow>('SELECT version, name, sha256, applied_at FROM schema_migrations ORDER BY version')
      .all();
  } catch (error) {
    throw damagedHistory(database, error);
  }
}

/** Throws a StartError when the database is newer than the program, or its history is not that of these migrations. */
export function requireKnownSchema(database: Database, migrations: readonly Migration[]): readonly Migration[] {
  const applied = readApplied(database);
  for (const [index, row] of applied.entries()) {
    if (row.version > migrations.length) {
      throw new StartError(
        `The database ${database.name} was made by a newer Keyveil (schema ${row.version}, this program knows ${migrations.length}). Install that version.`,
      );
    }
    const known = migrations[index];
    if (row.version !== index + 1 || row.name !== known?.name) throw damagedHistory(database);
    if (row.sha256 !== known.sha256) {
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
