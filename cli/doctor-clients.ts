// The clients that doctor tries: how each asks for a URL, with nothing but its variables to lead it through the proxy.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Environment } from './variables.ts';

const CLIENT_TIMEOUT_MS = 20_000;

const NODE_SCRIPT = 'fetch(process.argv[1]).then(() => {}, () => process.exit(1))';
const PYTHON_SCRIPT = 'import sys, urllib.request\nurllib.request.urlopen(sys.argv[1], timeout=15)';

interface ClientProgram {
  readonly name: string;
  readonly versionArgs: readonly string[];
  args(url: string): readonly string[];
  /** What to do where it does not work by variables alone. */
  readonly advice: string;
}

/** Programs in the order of the report. */
export const CLIENT_PROGRAMS: readonly ClientProgram[] = [
  {
    name: 'curl',
    versionArgs: ['--version'],
    args: (url) => ['-sS', '-o', '/dev/null', '-m', '15', url],
    advice: 'check CURL_CA_BUNDLE and ~/.curlrc',
  },
  {
    name: 'wget',
    versionArgs: ['--version'],
    args: (url) => ['-q', '-O', '/dev/null', '-T', '15', '-t', '1', url],
    advice: 'GnuTLS builds need ca_certificate in a file that WGETRC names',
  },
  {
    name: 'git',
    versionArgs: ['--version'],
    args: (url) => ['-c', 'credential.helper=', 'ls-remote', url],
    advice: 'check http.proxy and http.sslCAInfo in the git configuration',
  },
  {
    name: 'node',
    versionArgs: ['--version'],
    args: (url) => ['-e', NODE_SCRIPT, url],
    advice: 'fetch follows the variables from Node.js 24 on; before, code must set a proxy agent',
  },
  {
    name: 'python3',
    versionArgs: ['--version'],
    args: (url) => ['-c', PYTHON_SCRIPT, url],
    advice: 'check SSL_CERT_FILE',
  },
];

/** Runs a program without input or output; true when it ended with exit code 0, null when it is not there. */
async function runQuietly(file: string, args: readonly string[], env: Environment): Promise<boolean | null> {
  const child = spawn(file, args, { env, stdio: 'ignore', timeout: CLIENT_TIMEOUT_MS });
  try {
    const [exitCode] = (await once(child, 'exit')) as [number | null];
    return exitCode === 0;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** Whether a program is installed. */
export async function isInstalled(program: ClientProgram, env: Environment): Promise<boolean> {
  return (await runQuietly(program.name, program.versionArgs, env)) === true;
}

/** Lets a program ask for a URL; how that ended is read from the audit log, not from the program. */
export async function askBy(program: ClientProgram, url: string, env: Environment): Promise<void> {
  await runQuietly(program.name, program.args(url), { ...env, GIT_TERMINAL_PROMPT: '0' });
}
