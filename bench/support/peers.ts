// The peers that Keyveil is compared with: installed once from their own lock file, each started in its own process.
import { existsSync, readFileSync, mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { isInstalled, runCommand, startProgram } from './processes.ts';
import { proxyOf, type ProxyUnderTest } from './proxy.ts';
import { freePort, PEER_PLACEHOLDER, SECRET_VALUE, type Scene } from './scene.ts';

const FOLDER = join(import.meta.dirname, '../peers');

export type PeerName = 'http-mitm-proxy' | 'mockttp' | 'mitmproxy' | 'bare-sketch' | 'plain-tunnel';

/** Installs the peers' packages where they are missing; resolves with false, and the reason, when that can't be done. */
export async function installPeers(): Promise<{ readonly ok: boolean; readonly reason: string }> {
  if (existsSync(join(FOLDER, 'node_modules/http-mitm-proxy'))) return { ok: true, reason: '' };
  try {
    await runCommand(['npm', 'ci', '--prefix', FOLDER, '--no-audit', '--no-fund', '--ignore-scripts']);
    return { ok: true, reason: '' };
  } catch (error) {
    return { ok: false, reason: (error as Error).message };
  }
}

export function isPeerInstalled(name: PeerName): boolean {
  switch (name) {
    case 'mitmproxy':
      return isInstalled('mitmdump');
    case 'plain-tunnel':
      return true;
    case 'bare-sketch':
      return existsSync(join(FOLDER, 'node_modules/undici'));
    default:
      return existsSync(join(FOLDER, 'node_modules', name));
  }
}

async function versionOf(name: PeerName): Promise<string> {
  if (name === 'mitmproxy') return /Mitmproxy: (\S+)/.exec(await runCommand(['mitmdump', '--version']))?.[1] ?? '?';
  if (name === 'plain-tunnel') return process.version;
  const packageName = name === 'bare-sketch' ? 'undici' : name;
  const manifest = readFileSync(join(FOLDER, 'node_modules', packageName, 'package.json'), 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  return name === 'bare-sketch' ? `undici ${version}` : version;
}

function mitmproxyCommand(scene: Scene, port: number): string[] {
  const settings = {
    confdir: mkdtempSync(join(scene.folder, 'mitmproxy-')),
    ssl_verify_upstream_trusted_ca: scene.caPath,
    connection_strategy: 'lazy',
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
  const listen = ['--listen-host', '127.0.0.1', '--listen-port', String(port)];
  return ['mitmdump', '-q', '-s', join(FOLDER, 'mitmproxy_addon.py'), ...listen, ...flags];
}

export async function startPeer(name: PeerName, scene: Scene): Promise<ProxyUnderTest> {
  const port = await freePort();
  const env = {
    BENCH_CA: scene.caPath,
    BENCH_LEAF: scene.leafPath,
    BENCH_FOLDER: scene.folder,
    BENCH_PORT: String(port),
    BENCH_PLACEHOLDER: PEER_PLACEHOLDER,
    BENCH_VALUE: SECRET_VALUE,
    NODE_EXTRA_CA_CERTS: scene.caPath,
  };
  const program =
    name === 'mitmproxy'
      ? await startProgram(mitmproxyCommand(scene, port), { env, readyPort: port, isQuiet: true })
      : await startProgram([process.execPath, '--import', join(FOLDER, 'hosts.mjs'), join(FOLDER, `${name}.mjs`)], {
          env,
          readyLine: /^READY (\d+)/,
          isQuiet: true,
        });
  return proxyOf(program, {
    name,
    version: await versionOf(name),
    port: program.ready[0] === undefined ? port : Number(program.ready[0]),
    authorization: `Bearer ${name === 'plain-tunnel' ? SECRET_VALUE : PEER_PLACEHOLDER}`,
  });
}
