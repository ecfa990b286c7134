// Secrets that are easy to find again, and a search for them in everything that a daemon leaves behind.
import { randomBytes } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { byteForms, formsIn, valueForms } from './encodings.ts';

const WINDOW_BYTES = 32;

/** One secret of each shape, none of which occurs anywhere by chance. */
export function createCanarySecrets(): Record<string, string> {
  const random = (): string => randomBytes(12).toString('base64url');
  return {
    short: `q7$${randomBytes(3).toString('base64url')}`,
    plain: `sk-live-${random()}`,
    long: randomBytes(450).toString('base64url'),
    huge: Array.from({ length: 32 * 32 }, () => randomBytes(24).toString('base64url')).join(''),
    special: `p"q\\r/s'<&>%20+={};:,${random()}~^|`,
    text: `пароль-ключ-日本-é-${random()}`,
    base64: randomBytes(33).toString('base64'),
    basic: `robot:pass@${random()}`,
  };
}

/** What to look for: name to spelling to Latin-1 text. */
export type Needles = Record<string, Readonly<Record<string, string>>>;

/** Of a long text its head, middle and tail are looked for, so that a part of it is found too. */
export function textNeedles(name: string, text: string): Needles {
  const { length } = text;
  if (length <= 3 * WINDOW_BYTES) return { [name]: valueForms(text) };
  const middle = Math.floor(length / 2);
  return {
    [`${name}, its head`]: valueForms(text.slice(0, WINDOW_BYTES)),
    [`${name}, its middle`]: valueForms(text.slice(middle, middle + WINDOW_BYTES)),
    [`${name}, its tail`]: valueForms(text.slice(-WINDOW_BYTES)),
  };
}

export function keyNeedles(name: string, bytes: Buffer): Needles {
  return { [name]: byteForms(bytes) };
}

/** Bytes that were found somewhere. */
export interface Evidence {
  /** The kind of place, such as `log`. */
  readonly place: string;
  /** Which one of that kind. */
  readonly label: string;
  readonly bytes: Buffer;
}

/** Every needle that lies in the evidence, as `place (label): name, spelling`. */
export function findLeaks(evidence: readonly Evidence[], needles: Needles): string[] {
  return evidence.flatMap(({ place, label, bytes }) => {
    const text = bytes.toString('latin1');
    return Object.entries(needles).flatMap(([name, forms]) =>
      formsIn(text, forms).map((form) => `${place} (${label}): ${name}, ${form}`),
    );
  });
}

/** Every plain file below a directory, by a place that each path is given; null leaves it out. */
export function collectFiles(directory: string, placeOf: (path: string) => string | null): Evidence[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).flatMap((name) => {
    const path = join(directory, name);
    const place = placeOf(name);
    // What is there for a moment only may be gone by now.
    if (place === null || lstatSync(path, { throwIfNoEntry: false })?.isFile() !== true) return [];
    return [{ place, label: name, bytes: readFileSync(path) }];
  });
}

/** What `read` gives; null when the process or the file is gone by now. */
function unlessGone<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw error;
  }
}

function childrenOf(pid: number): number[] {
  const tasks = `/proc/${String(pid)}/task`;
  return (unlessGone(() => readdirSync(tasks)) ?? []).flatMap((task) =>
    (unlessGone(() => readFileSync(join(tasks, task, 'children'), 'latin1')) ?? '')
      .split(' ')
      .flatMap((text) => (text.trim() === '' ? [] : [Number(text)])),
  );
}

/** The process and all that it started, their children included (Linux). */
export function processesOf(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(processesOf)];
}

/** A deleted file that a process has open below one of the directories; null for any other. */
function openFile(path: string, below: readonly string[]): Buffer | null {
  const target = readlinkSync(path);
  return target.endsWith(' (deleted)') && below.some((directory) => target.startsWith(directory))
    ? readFileSync(path)
    : null;
}

/** Command line, environment, and the deleted files that it has open below some directories, of a process (Linux, proc(5)). */
export function collectProcess(pid: number, below: readonly string[]): Evidence[] {
  const directory = `/proc/${String(pid)}`;
  const label = `process ${String(pid)}`;
  const evidence = (place: string, detail: string, read: () => Buffer | null): Evidence[] => {
    const bytes = unlessGone(read);
    return bytes === null ? [] : [{ place, label: detail, bytes }];
  };
  const numbers = unlessGone(() => readdirSync(join(directory, 'fd'))) ?? [];
  return [
    ...evidence('command lines', label, () => readFileSync(join(directory, 'cmdline'))),
    ...evidence('environments', label, () => readFileSync(join(directory, 'environ'))),
    ...numbers.flatMap((number) =>
      evidence('open files', `${label}, ${number}`, () => openFile(join(directory, 'fd', number), below)),
    ),
  ];
}
