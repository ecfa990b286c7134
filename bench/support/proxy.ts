// A proxy under test, whatever it is: where it listens, how a client logs in, what it is sent, and what it costs.
import { cpuSecondsOf, processTree, residentBytesOf, type Program } from './processes.ts';

export interface Login {
  readonly user: string;
  readonly password: string;
}

export interface ProxyUnderTest {
  readonly name: string;
  readonly version: string;
  readonly port: number;
  readonly login: Login | null;
  /** Value of the `Authorization` field that a client sends: the upstream must see the real one. */
  readonly authorization: string;
  /** User and system time so far, in seconds, of the process, its threads and its descendants. */
  cpuSeconds(): number;
  residentBytes(): number;
  /** Process ids, the proxy's own first. */
  pids(): readonly number[];
  stop(): Promise<void>;
}

export interface ProxyDescription {
  readonly name: string;
  readonly version: string;
  readonly port: number;
  readonly login?: Login;
  readonly authorization: string;
}

export function proxyOf(program: Program, description: ProxyDescription): ProxyUnderTest {
  const pid = program.child.pid as number;
  // Descendants are there from the start and looked up once: walking /proc costs more than a round's precision.
  const pids = processTree(pid);
  return {
    ...description,
    login: description.login ?? null,
    pids: () => pids,
    cpuSeconds: () => cpuSecondsOf(pids),
    residentBytes: () => residentBytesOf(pids),
    stop: () => program.stop(),
  };
}
