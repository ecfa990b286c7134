// What the kernel and the runtime could show or write down of this process's memory: core files, and the inspector.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The limit, in bytes, under which Linux writes no core and starts no program that takes one: 0 does not hold for a
 * `core_pattern` that is a program (core(5)), and 1 is what the kernel sets for such programs themselves.
 */
const NO_CORE_BYTES = 1;
const LIMIT_TIMEOUT_MS = 5000;
const SYSTEM_PATH = '/usr/bin:/bin:/usr/sbin:/sbin';

/**
 * Keeps memory out of core files (Linux). No memory mapping is written into one (core(5), "Controlling which mappings
 * are written to the core dump"), and the core limit is lowered so that none is made: what would be left of it are the
 * registers of the threads, and those hold pieces of what was copied last. Programs started from here on inherit both.
 * Answers what the operator has to do where one of them could not be had, a sentence each; systems without /proc have
 * neither, and get no answer. `directory` is the process's directory in /proc.
 */
export function keepMemoryOutOfCores(directory = '/proc/self'): string[] {
  if (!existsSync(directory)) return [];
  return [setFilter(join(directory, 'coredump_filter')), lowerLimit(join(directory, 'limits'))].filter(
    (warning) => warning !== null,
  );
}

function setFilter(path: string): string | null {
  try {
    writeFileSync(path, '0', { flag: 'r+' });
    const now = readFileSync(path, 'latin1').trim();
    return Number.parseInt(now, 16) === 0 ? null : filterWarning(path, `stays ${now}`);
  } catch (error) {
    return filterWarning(path, (error as NodeJS.ErrnoException).code ?? 'unknown error');
  }
}

function filterWarning(path: string, why: string): string {
  return `A core dump of this process would hold every secret: ${path} could not be set to 0 (${why}). Set its core limit (ulimit -c 0, LimitCORE=1, or ulimits: {core: 1} for a container).`;
}

/** Bytes of the limit in force, from the table that proc_pid_limits(5) describes; null for none, or none that is told. */
function limitIn(path: string): number | null {
  if (!existsSync(path)) return null;
  const bytes = /^Max core file size +(\d+) /m.exec(readFileSync(path, 'latin1'))?.[1];
  return bytes === undefined ? null : Number(bytes);
}

// The runtime has no call for limits; util-linux has a program.
function lowerLimit(path: string): string | null {
  const isLow = (): boolean => (limitIn(path) ?? Infinity) <= NO_CORE_BYTES;
  const args = ['--pid', String(process.pid), `--core=${NO_CORE_BYTES}:`];
  const { error } = spawnSync('prlimit', args, {
    env: { PATH: SYSTEM_PATH },
    stdio: 'ignore',
    timeout: LIMIT_TIMEOUT_MS,
  });
  if (isLow()) return null;
  const why = (error as NodeJS.ErrnoException | undefined)?.code ?? 'refused';
  return `A core dump of this process would hold the registers of its threads, with pieces of secrets in them: its core limit could not be lowered by prlimit (${why}). Set it (ulimit -c 0, LimitCORE=1, or ulimits: {core: 1} for a container).`;
}

/** Takes SIGUSR1, at which Node.js would open the inspector for whoever can connect to its port. */
export function keepInspectorShut(): void {
  process.on('SIGUSR1', () => undefined);
}
