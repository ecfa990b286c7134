// The program's version, from its package.
import { readFileSync } from 'node:fs';

function readVersion(): string {
  // The package file is one folder up in the sources, and two in the build.
  const folder = import.meta.url.endsWith('.ts') ? '../package.json' : '../../package.json';
  const text = readFileSync(new URL(folder, import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

export const VERSION = readVersion();
