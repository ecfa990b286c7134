// The admin token: from the configuration, or from the file in the data directory, which is read again when it changes.
import { createHash, randomBytes } from 'node:crypto';
import { lstatSync, readFileSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { StartError } from '../model/errors.ts';
import { ADMIN_TOKEN_CHARACTERS_MIN } from '../model/limits.ts';
import type { Logger } from '../model/ports.ts';
import type { Secret } from '../model/secret.ts';
import { securePrivateFiles } from '../store/database.ts';
import { writePrivateFile } from '../store/key-file.ts';
import type { Config } from './config.ts';
import { explainSystemError } from './system-error.ts';

const TOKEN_BYTES = 32;

/** Path of the token file in a data directory. */
export function adminTokenPathOf(dataDir: string): string {
  return join(dataDir, 'admin-token');
}

/** A new admin token: `kvad_` and 32 random bytes in base64url. */
export function createAdminTokenText(): string {
  return `kvad_${randomBytes(TOKEN_BYTES).toString('base64url')}`;
}

function digestOf(token: Buffer): Buffer {
  return createHash('sha256').update(token).digest();
}

function stampOf(stat: Stats): string {
  return `${stat.ino} ${stat.mtimeMs} ${stat.ctimeMs} ${stat.size}`;
}

function readTokenFile(path: string): Buffer {
  const text = readFileSync(path, 'latin1').trim();
  if (text.length < ADMIN_TOKEN_CHARACTERS_MIN || /[^\x21-\x7e]/.test(text)) {
    throw new StartError(
      `${path} must hold one line with a token of at least ${ADMIN_TOKEN_CHARACTERS_MIN} printable characters. ` +
        'Put it back, or remove the file to have a new token made at the next start.',
    );
  }
  return Buffer.from(text, 'latin1');
}

export interface AdminTokenSource {
  /** SHA-256 of the tokens that are good now. */
  digests(): readonly Buffer[];
  readonly warnings: readonly string[];
}

/** Follows the file: after `keyveil admin-token rotate` the new token is good at once and the old one is not. */
class TokenFile implements AdminTokenSource {
  readonly warnings: readonly string[];
  readonly #path: string;
  readonly #logger: Logger;
  #stamp = '';
  #digests: readonly Buffer[] = [];

  constructor(path: string, logger: Logger) {
    this.#path = path;
    this.#logger = logger;
    const isNew = lstatSync(path, { throwIfNoEntry: false }) === undefined;
    if (isNew) writePrivateFile(path, `${createAdminTokenText()}\n`);
    this.warnings = securePrivateFiles([path]);
    this.#read();
  }

  digests(): readonly Buffer[] {
    const stat = lstatSync(this.#path, { throwIfNoEntry: false });
    // Without a readable file nobody gets in: absent means deny.
    if (stat === undefined || !stat.isFile()) return [];
    // Owner and mode show in the time of the last change of state.
    if (stampOf(stat) !== this.#stamp) this.#readAgain(stat);
    return this.#digests;
  }

  // What can't be read, or is no token, lets nobody in either; the log says it once for each state of the file.
  #readAgain(stat: Stats): void {
    try {
      this.#read();
    } catch (error) {
      this.#digests = [];
      this.#stamp = stampOf(stat);
      const why = error instanceof StartError ? error.message : explainSystemError(error);
      this.#logger.error(
        { error, path: this.#path },
        `No admin token is accepted: ${why ?? 'the file can not be read'}`,
      );
    }
  }

  #read(): void {
    const stat = lstatSync(this.#path);
    this.#digests = [digestOf(readTokenFile(this.#path))];
    this.#stamp = stampOf(stat);
  }
}

function fixedToken(token: Secret): AdminTokenSource {
  const digests = [digestOf(token.reveal())];
  return { digests: () => digests, warnings: [] };
}

/** Opens the token; makes `<data>/admin-token` (mode 0600) when there is none. Throws a StartError. */
export function openAdminToken(config: Pick<Config, 'adminToken' | 'dataDir'>, logger: Logger): AdminTokenSource {
  const { adminToken, dataDir } = config;
  return adminToken === null ? new TokenFile(adminTokenPathOf(dataDir), logger) : fixedToken(adminToken);
}
