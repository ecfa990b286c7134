// Cores of processes that were aborted: where the system puts them, and what they hold (Linux, core(5)).
import { execFileSync } from 'node:child_process';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const ELF_MAGIC = Buffer.from('\x7fELF', 'latin1');
/** Offset and value of `e_type` in a core file (elf(5)). */
const TYPE_AT = 16;
const ET_CORE = 4;

/** The directory in which a process that runs in `cwd` leaves its core, or why no test can read one there. */
export function placeOfCores(cwd: string): { readonly directory: string } | { readonly reason: string } {
  if (process.platform !== 'linux') return { reason: 'cores are looked for on Linux alone' };
  const pattern = readFileSync('/proc/sys/kernel/core_pattern', 'latin1').trim();
  if (pattern.startsWith('|')) return { reason: `core_pattern hands cores to a program: ${pattern}` };
  if (pattern === '') return { reason: 'core_pattern is empty: no core is written' };
  if (dirname(pattern).includes('%'))
    return { reason: `core_pattern has a folder that is not known ahead: ${pattern}` };
  const hard = /^Max core file size +\S+ +(\S+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1];
  if (hard === '0') return { reason: 'the hard limit of cores is 0' };
  const directory = resolve(cwd, dirname(pattern));
  try {
    accessSync(directory, constants.R_OK | constants.W_OK);
  } catch {
    return { reason: `core_pattern has a folder that can't be written: ${pattern}` };
  }
  return { directory };
}

/** Which memory mappings a core of the process has: bits, as a number. */
export function coreFilterOf(pid: number): number {
  return Number.parseInt(readFileSync(`/proc/${String(pid)}/coredump_filter`, 'latin1'), 16);
}

/** The cores in a directory by path, with the moment of their last change. */
function coresIn(directory: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    const status = statSync(path, { throwIfNoEntry: false });
    // Where everybody's cores go, those of others can't be read.
    const isOwn = status?.isFile() === true && status.uid === process.getuid?.();
    if (isOwn && isCore(path)) found.set(path, status.mtimeMs);
  }
  return found;
}

function isCore(path: string): boolean {
  const bytes = Buffer.alloc(TYPE_AT + 2);
  const file = openSync(path, 'r');
  const count = readSync(file, bytes);
  closeSync(file);
  return (
    count === bytes.length &&
    bytes.subarray(0, ELF_MAGIC.length).equals(ELF_MAGIC) &&
    bytes.readUInt16LE(TYPE_AT) === ET_CORE
  );
}

/** Lets a process, and what it starts, leave a core of any size. */
export function allowCores(pid: number): void {
  execFileSync('prlimit', ['--pid', String(pid), '--core=unlimited:']);
}

/** Aborts a process, and takes its core away; null when it left none. */
export async function abortForCore(pid: number, directory: string): Promise<Buffer | null> {
  const before = coresIn(directory);
  process.kill(pid, 'SIGABRT');
  // The link is gone when the memory is, which is after the core was written.
  while (existsSync(`/proc/${String(pid)}/exe`)) await new Promise((done) => setTimeout(done, 20));
  const fresh = [...coresIn(directory)].filter(([path, changed]) => before.get(path) !== changed);
  const [path] = fresh[0] ?? [];
  if (path === undefined) return null;
  const bytes = readFileSync(path);
  rmSync(path);
  return bytes;
}

interface CoreParts {
  /** Memory, mapping after mapping. */
  readonly memory: Buffer;
  /** Registers of all threads. */
  readonly registers: Buffer;
  /** All else: headers, names of mapped files, the first arguments, the signal. */
  readonly rest: Buffer;
}

const PT_LOAD = 1;
const PT_NOTE = 4;
const PROGRAM_HEADER_BYTES = 56;
const NOTE_HEADER_BYTES = 12;
/** NT_PRSTATUS and NT_FPREGSET; further registers are notes of the owner `LINUX`. */
const REGISTER_NOTES: readonly number[] = [1, 2];

/** Takes a core of a little-endian 64-bit machine apart (elf(5)). */
export function partsOf(core: Buffer): CoreParts {
  const tableAt = Number(core.readBigUInt64LE(32));
  const count = core.readUInt16LE(56);
  const parts = { memory: [] as Buffer[], registers: [] as Buffer[], rest: [] as Buffer[] };
  parts.rest.push(core.subarray(0, tableAt + count * PROGRAM_HEADER_BYTES));
  for (let index = 0; index < count; index += 1) {
    const at = tableAt + index * PROGRAM_HEADER_BYTES;
    const start = Number(core.readBigUInt64LE(at + 8));
    const bytes = core.subarray(start, start + Number(core.readBigUInt64LE(at + 32)));
    const type = core.readUInt32LE(at);
    if (type === PT_LOAD) parts.memory.push(bytes);
    else if (type !== PT_NOTE) parts.rest.push(bytes);
    else for (const note of notesOf(bytes)) (note.isRegisters ? parts.registers : parts.rest).push(note.bytes);
  }
  return {
    memory: Buffer.concat(parts.memory),
    registers: Buffer.concat(parts.registers),
    rest: Buffer.concat(parts.rest),
  };
}

const padded = (length: number): number => Math.ceil(length / 4) * 4;

function notesOf(segment: Buffer): { bytes: Buffer; isRegisters: boolean }[] {
  const notes: { bytes: Buffer; isRegisters: boolean }[] = [];
  for (let at = 0; at + NOTE_HEADER_BYTES <= segment.length;) {
    const nameBytes = segment.readUInt32LE(at);
    const length = NOTE_HEADER_BYTES + padded(nameBytes) + padded(segment.readUInt32LE(at + 4));
    const owner = segment.toString('latin1', at + NOTE_HEADER_BYTES, at + NOTE_HEADER_BYTES + nameBytes - 1);
    const isRegisters = owner === 'LINUX' || REGISTER_NOTES.includes(segment.readUInt32LE(at + 8));
    notes.push({ bytes: segment.subarray(at, at + length), isRegisters });
    at += length;
  }
  return notes;
}
