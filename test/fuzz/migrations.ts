// Fuzzes the migrations: folders that are damaged, edited, cut or of another version, and a damaged history in the database.
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StartError } from '../../model/errors.ts';
import { CONTROL_DATABASE, openConnection, openOwnedDatabase, type Database } from '../../store/database.ts';
import { CONTROL_MIGRATIONS, migrate } from '../../store/migrate.ts';
import { below, mutateText, pick, type FuzzTarget, type Random } from './target.ts';

interface FileChange {
  readonly name: string;
  /** Null removes the file; Latin-1. */
  readonly text: string | null;
}

interface Input {
  /** How many of the migrations the database has; none of them when 0. */
  readonly applied: number;
  readonly files: readonly FileChange[];
  /** Statements on the database. */
  readonly statements: readonly string[];
}

const MORE: Readonly<Record<string, string>> = {
  '0002_more.sql': 'CREATE TABLE more (a INTEGER) STRICT;\nINSERT INTO more VALUES (1), (2);\n',
  '0003_last.sql': 'ALTER TABLE more ADD COLUMN b TEXT;\nUPDATE more SET b = a;\n',
};
const COUNT = 1 + Object.keys(MORE).length;
const NOW_MS = 1_700_000_000_000;
const TOKENS = [
  ';',
  '--',
  '/*',
  "'",
  '\0',
  'DROP TABLE vaults;',
  'COMMIT;',
  'ROLLBACK;',
  'BEGIN;',
  'PRAGMA user_version = 9;',
  '\n',
  'x',
];
const STATEMENTS = [
  'DELETE FROM schema_migrations',
  'DELETE FROM schema_migrations WHERE version = 1',
  'DELETE FROM schema_migrations WHERE version = (SELECT max(version) FROM schema_migrations)',
  "UPDATE schema_migrations SET sha256 = 'x' || sha256",
  'UPDATE schema_migrations SET sha256 = upper(sha256)',
  'UPDATE schema_migrations SET version = -version',
  'UPDATE schema_migrations SET version = version + 1',
  'UPDATE schema_migrations SET version = version + 9007199254740993',
  "UPDATE schema_migrations SET name = 'another'",
  "INSERT INTO schema_migrations VALUES (99, '0099_newer.sql', 'x', 1)",
  "INSERT INTO schema_migrations VALUES (0, '0000_zero.sql', 'x', 1)",
  'DROP TABLE schema_migrations',
  'ALTER TABLE schema_migrations RENAME COLUMN sha256 TO sha512',
  'ALTER TABLE schema_migrations DROP COLUMN name',
  'DROP TABLE schema_migrations; CREATE VIEW schema_migrations AS SELECT 1 AS version, 2 AS name, 3 AS sha256',
  'DROP TABLE schema_migrations; CREATE TABLE schema_migrations (version, name, sha256, applied_at); INSERT INTO schema_migrations VALUES (NULL, NULL, NULL, NULL)',
  "DROP TABLE schema_migrations; CREATE TABLE schema_migrations (version, name, sha256, applied_at); INSERT INTO schema_migrations VALUES ('1', x'00', 1.5, '')",
];

/** Schema and rows, in words that can be compared. */
function dump(database: Database): string {
  const schema = database
    .prepare<[], { name: string; type: string; sql: string | null }>(
      'SELECT type, name, sql FROM sqlite_schema ORDER BY name, type',
    )
    .all();
  const tables = schema.filter(({ type, name }) => type === 'table' && !name.startsWith('sqlite_'));
  const rows = tables.map(({ name }) => [name, database.prepare(`SELECT * FROM "${name}"`).safeIntegers().all()]);
  return JSON.stringify([schema, rows], (_key, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
}

class MigrationTarget implements FuzzTarget {
  readonly #directory = mkdtempSync(join(tmpdir(), 'kv-migrations-'));
  readonly #names: readonly string[];
  /** What the whole database looks like when nothing was wrong, by what it had before. */
  readonly #expected: readonly string[];

  constructor() {
    const folder = join(this.#directory, 'migrations');
    cpSync(CONTROL_MIGRATIONS, folder, { recursive: true });
    for (const [name, text] of Object.entries(MORE)) writeFileSync(join(folder, name), text);
    const sql = readdirSync(folder).filter((name) => name.endsWith('.sql'));
    const sums = sql.map(
      (name) =>
        `${createHash('sha256')
          .update(readFileSync(join(folder, name)))
          .digest('hex')}  ${name}\n`,
    );
    writeFileSync(join(folder, 'SHA256SUMS'), sums.join(''));
    this.#names = [...sql.sort(), 'SHA256SUMS'];
    this.#expected = Array.from({ length: COUNT + 1 }, (_, applied) => this.#prepare(applied));
  }

  /** Makes the database that has so many migrations, and gives the dump of one that has got the rest as well. */
  #prepare(applied: number): string {
    const path = join(this.#directory, `applied-${applied}.db`);
    const part = join(this.#directory, `part-${applied}`);
    const database = openOwnedDatabase(path, CONTROL_DATABASE).database;
    if (applied > 0) {
      mkdirSync(part);
      const names = this.#names.slice(0, applied);
      for (const name of names) copyFileSync(join(this.#directory, 'migrations', name), join(part, name));
      const sums = readFileSync(join(this.#directory, 'migrations', 'SHA256SUMS'), 'latin1').split('\n');
      writeFileSync(
        join(part, 'SHA256SUMS'),
        sums
          .slice(0, applied)
          .map((line) => `${line}\n`)
          .join(''),
      );
      migrate(database, part, NOW_MS);
      database.exec(
        "INSERT INTO vaults (id, display_name, metadata, created_at, updated_at) VALUES ('v', 'v', '{}', 1, 1)",
      );
    }
    database.pragma('wal_checkpoint(TRUNCATE)');
    database.close();
    const whole = join(this.#directory, 'whole.db');
    copyFileSync(path, whole);
    const copy = openConnection(whole, { readonly: false });
    migrate(copy, join(this.#directory, 'migrations'), NOW_MS);
    const text = dump(copy);
    copy.close();
    return text;
  }

  make(random: Random): Input {
    const files: FileChange[] = [];
    const textOf = (name: string): string => readFileSync(join(this.#directory, 'migrations', name), 'latin1');
    while (random() < 0.6) {
      const name = pick(this.#names, random);
      const text = textOf(name);
      const changes: readonly (() => FileChange[])[] = [
        () => [{ name, text: null }],
        () => [{ name, text: text.slice(0, below(text.length, random)) }],
        () => [{ name, text: mutateText(text, TOKENS, random) }],
        () => [{ name, text: '' }],
        () => [
          {
            name: pick(['0004_newer.sql', '0009_gap.sql', '1_x.sql', '0001_twice.sql', 'notes.txt', '.sql'], random),
            text,
          },
        ],
        () => [
          { name, text: null },
          { name: name.replace('000', '00'), text },
        ],
        () => [{ name, text: textOf(pick(this.#names, random)) }],
      ];
      files.push(...pick(changes, random)());
    }
    const statements: string[] = [];
    while (random() < 0.4) statements.push(pick(STATEMENTS, random));
    return { applied: below(COUNT + 1, random), files, statements };
  }

  async attempt(input: unknown): Promise<string | null> {
    const { applied, files, statements } = input as Input;
    const place = mkdtempSync(join(this.#directory, 'try-'));
    try {
      const folder = join(place, 'migrations');
      cpSync(join(this.#directory, 'migrations'), folder, { recursive: true });
      for (const { name, text } of files) {
        rmSync(join(folder, name), { force: true, recursive: true });
        if (text !== null) writeFileSync(join(folder, name), text, 'latin1');
      }
      const path = join(place, 'keyveil.db');
      copyFileSync(join(this.#directory, `applied-${applied}.db`), path);
      return this.#judge(path, folder, { expected: this.#expected[applied] as string, statements });
    } finally {
      rmSync(place, { recursive: true, force: true });
    }
  }

  #judge(path: string, folder: string, run: { expected: string; statements: readonly string[] }): string | null {
    const database = openConnection(path, { readonly: false });
    try {
      for (const statement of run.statements) {
        try {
          database.exec(statement);
        } catch {
          // A statement that an earlier one made impossible changes nothing.
        }
      }
      const before = dump(database);
      try {
        migrate(database, folder, NOW_MS);
      } catch (error) {
        if (!(error instanceof StartError)) return `no clear refusal: ${String(error)}`;
        if (!/[A-Z].*\. .+\.$|; nothing of it was kept\.$/.test(error.message))
          return `an odd refusal: ${error.message}`;
        return dump(database) === before ? null : `refused (${error.message}), but the database was changed`;
      }
      const after = dump(database);
      return after === run.expected ? null : `taken, but the database is not what it should be: ${after.slice(0, 300)}`;
    } finally {
      database.close();
    }
  }

  async close(): Promise<void> {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

export async function openMigrationTarget(): Promise<FuzzTarget> {
  return new MigrationTarget();
}
