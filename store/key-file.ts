// Master keys as text and as files: 32 bytes in base64; the default key is made once, at the very first start.
import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, lstatSync, readFileSync, writeSync } from 'node:fs';
import { StartError } from '../model/errors.ts';
import { Secret } from '../model/secret.ts';
import { dataPathsOf } from './data-directory.ts';
import { openPrivateFile, securePrivateFiles, syncDirectory } from './database.ts';
import { giveTo, ownerFor } from './file-owner.ts';
import { MASTER_KEY_BYTES } from './key-ring.ts';

/** Standard base64 or base64url of 32 bytes, with or without padding. */
const KEY_TEXT = /^[A-Za-z0-9+/_-]{43}=?$/;

/**
 * Reads a key; `source` names where the text is from, such as `KEYVEIL_MASTER_KEY`. Throws a StartError that holds
 * nothing of the text.
 */
export function parseMasterKey(text: string, source: string): Secret {
  const trimmed = text.trim();
  if (!KEY_TEXT.test(trimmed)) {
    throw new StartError(
      `${source} must hold ${MASTER_KEY_BYTES} bytes in base64 (44 characters), as \`openssl rand -base64 32\` prints them.`,
    );
  }
  return Secret.fromBytes(Buffer.from(trimmed, 'base64'));
}

/** A new key and its text as a file holds it. */
export function createMasterKeyText(): string {
  return `${randomBytes(MASTER_KEY_BYTES).toString('base64')}\n`;
}

/**
 * Writes a file of mode 0600 that did not exist before, and flushes it to the disk. When root writes it, it belongs to
 * whoever owns the file `replaces`, or else the folder. Throws what the system throws.
 */
export function writePrivateFile(path: string, text: string, replaces = path): void {
  const owner = ownerFor(replaces);
  const descriptor = openPrivateFile(path);
  try {
    giveTo(descriptor, owner, { path });
    writeSync(descriptor, text);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

export interface MasterKeyFile {
  readonly key: Secret;
  readonly path: string;
  readonly isNew: boolean;
  readonly warnings: readonly string[];
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/**
 * Reads `<data>/master.key`, or makes it when the directory holds no database yet: a key is never made anew for data
 * that another key sealed. Throws a StartError.
 */
export function openMasterKeyFile(directory: string): MasterKeyFile {
  const { masterKey: path, controlDatabase } = dataPathsOf(directory);
  const isNew = !exists(path);
  if (isNew) {
    if (exists(controlDatabase)) {
      throw new StartError(
        `The master key ${path} is missing, and ${controlDatabase} was sealed with it. Put the file back, or give the key by KEYVEIL_MASTER_KEY_FILE.`,
      );
    }
    writePrivateFile(path, createMasterKeyText());
    syncDirectory(directory);
  }
  const warnings = securePrivateFiles([path]);
  return { key: parseMasterKey(readFileSync(path, 'latin1'), path), path, isNew, warnings };
}
