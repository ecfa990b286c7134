// Clients that are compiled first: Go, Java, Rust.
import { spawnSync } from 'node:child_process';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { API, expect, probeProgram, programChecks, type Client } from './client.ts';
import { program } from './script-clients.ts';
import type { Scene } from './scene.ts';

const PLAIN = ['header', 'body', 'upload', 'stream'] as const;

/** Compilers run outside the sandbox, with this process's own environment. */
function build(file: string, args: readonly string[], cwd: string): void {
  const { status, stdout, stderr } = spawnSync(file, args, { cwd, encoding: 'utf8' });
  expect(status === 0, `${[file, ...args].join(' ')} failed:\n${stdout}${stderr}`);
}

const goProgram = ({ directory }: Scene): string => join(directory, 'go-client');

export const go: Client = {
  name: 'Go net/http',
  needs: '',
  probe: () => probeProgram('go', ['version'], /go(\d\S+)/),
  prepare: async (scene) => build('go', ['build', '-o', goProgram(scene), program('go/main.go')], scene.directory),
  checks: programChecks({
    command: (column, scene) => ({ file: goProgram(scene), args: [column, API, scene.upload.path] }),
    columns: PLAIN,
    http: '2.0',
  }),
};

const STORE_PASSWORD = 'changeit';

async function prepareJava({ directory }: Scene): Promise<void> {
  build('javac', ['-d', directory, program('java/Main.java')], directory);
  const store = ['-keystore', join(directory, 'trust.p12'), '-storepass', STORE_PASSWORD];
  const certificate = ['-alias', 'keyveil', '-file', join(directory, 'ca.pem')];
  // The second client finds the store of the first.
  spawnSync('keytool', ['-delete', '-alias', 'keyveil', ...store]);
  build('keytool', ['-importcert', '-noprompt', ...certificate, ...store], directory);
}

function java(
  kind: 'client' | 'connection',
  client: Pick<Client, 'name'> & { login: string; http: '1.1' | '2.0' },
): Client {
  return {
    name: client.name,
    needs: `flags for proxy, trust store and tunnel login, and ${client.login}`,
    probe: () => probeProgram('javac', ['-version'], /javac (\S+)/),
    prepare: prepareJava,
    checks: programChecks({
      command: (column, { directory, proxy, upload }) => ({
        file: 'java',
        args: [
          `-Dhttps.proxyHost=${proxy.hostname}`,
          `-Dhttps.proxyPort=${proxy.port}`,
          '-Djdk.http.auth.tunneling.disabledSchemes=',
          `-Djavax.net.ssl.trustStore=${join(directory, 'trust.p12')}`,
          `-Djavax.net.ssl.trustStorePassword=${STORE_PASSWORD}`,
          ...['-cp', directory, 'Main', kind, column, API, upload.path],
        ],
      }),
      columns: kind === 'client' ? [...PLAIN, 'websocket'] : PLAIN,
      http: client.http,
    }),
  };
}

export const javaClient = java('client', {
  name: 'Java HttpClient',
  login: 'a `Proxy-Authorization` header',
  http: '2.0',
});
export const javaConnection = java('connection', {
  name: 'Java HttpsURLConnection',
  login: 'an `Authenticator`',
  http: '1.1',
});

const rustFolder = ({ directory }: Scene): string => join(directory, 'rust');
const CARGO = '/usr/bin/cargo';

export const ureq: Client = {
  name: 'Rust ureq',
  needs: '`AgentBuilder::proxy(Proxy::new(…))`',
  probe: () => {
    const found = probeProgram('sh', ['-c', 'ls -d /usr/share/cargo/registry/ureq-*'], /ureq-(2\S+)/);
    if ('missing' in found) return { missing: 'the Debian package librust-ureq-dev is not installed' };
    const cargo = probeProgram(CARGO, ['--version'], /^cargo (\S+)/);
    return 'missing' in cargo ? cargo : found;
  },
  prepare: async (scene) => {
    cpSync(program('rust'), rustFolder(scene), { recursive: true });
    build(CARGO, ['build', '--offline', '--quiet'], rustFolder(scene));
  },
  checks: programChecks({
    command: (column, scene) => ({
      file: join(rustFolder(scene), 'target/debug/rust-client'),
      args: [column, API, scene.upload.path],
    }),
    columns: PLAIN,
    http: '1.1',
  }),
};
