// The configuration: the only reader of the process's environment, and the checks between settings.
import { resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import { X509Certificate } from 'node:crypto';
import { StartError } from '../model/errors.ts';
import { THREAD_POOL_SIZE_MAX } from '../model/limits.ts';
import { Secret } from '../model/secret.ts';
import { isLoopback, type ListenAddress } from './config-parse.ts';
import { SETTINGS, type SettingName, type SettingValues } from './config-schema.ts';
import {
  originOf,
  readNamedFile,
  secretOriginOf,
  refuseUnknownVariables,
  resolveSetting,
  type ConfigSources,
  type Variables,
} from './config-source.ts';
import { refuseUnsafeRuntime } from './unsafe-runtime.ts';

/** A certificate chain and its key, checked against each other. */
interface TlsIdentity {
  readonly certPem: string;
  readonly keyPem: Secret;
}

type FileSetting = 'adminTlsCertFile' | 'adminTlsKeyFile' | 'proxyTlsCertFile' | 'proxyTlsKeyFile' | 'upstreamCaFile';

/** Everything that can be configured, as domain types; `dataDir` is absolute. */
export interface Config extends Omit<SettingValues, FileSetting | 'url'> {
  readonly adminTls: TlsIdentity | null;
  readonly proxyTls: TlsIdentity | null;
  /** Roots beside the public ones that upstreams are verified against. */
  readonly upstreamCaPem: string | null;
  /** Threads of the runtime's pool (`UV_THREADPOOL_SIZE`); null where the runtime decides. */
  readonly threadPoolSize: number | null;
  /** Sentences for the log: what was started all the same, and why it is unsafe. */
  readonly warnings: readonly string[];
}

/** What the commands need to reach a daemon. */
export interface ClientConfig {
  readonly dataDir: string;
  /** Null means the Unix socket in the data directory. */
  readonly url: string | null;
  /** Null means the file `admin-token` in the data directory. */
  readonly adminToken: Secret | null;
  /** Where the token was named, such as `/run/token (--admin-token-file)`. */
  readonly adminTokenOrigin?: string | null;
}

export interface LoadOptions extends Partial<ConfigSources> {
  /** Options of the runtime itself, such as `--tls-keylog`; those of this process unless given. */
  readonly execArgv?: readonly string[];
}

/** The environment of this process, for commands that hand it on to a child. */
export function processEnvironment(): Variables {
  return process.env;
}

/**
 * Removes the secrets from this process's environment once they are read: the programs that it starts, worker processes
 * included, and whatever prints its environment never have them.
 */
export function forgetSecretVariables(): void {
  for (const { variable, isSecret } of Object.values(SETTINGS)) {
    if (isSecret) Reflect.deleteProperty(process.env, variable);
  }
}

function sourcesOf(options: LoadOptions): ConfigSources {
  return { env: options.env ?? process.env, flags: options.flags ?? {}, cwd: options.cwd ?? process.cwd() };
}

// The runtime reads it by itself, and takes what is no number for its default.
function readThreadPoolSize(env: Variables): number | null {
  const size = Number.parseInt(env['UV_THREADPOOL_SIZE'] ?? '', 10);
  return Number.isNaN(size) ? null : Math.min(Math.max(size, 1), THREAD_POOL_SIZE_MAX);
}

interface TlsFiles {
  readonly cert: string | null;
  readonly key: string | null;
  /** The flags or variables of both. */
  readonly certName: string;
  readonly keyName: string;
}

function loadTls(files: TlsFiles): TlsIdentity | null {
  const { certName, keyName } = files;
  if (files.cert === null && files.key === null) return null;
  if (files.cert === null || files.key === null) {
    const [present, absent] = files.cert === null ? [keyName, certName] : [certName, keyName];
    throw new StartError(
      `${present} is set without ${absent}: set both (for example ${absent}=/etc/keyveil/tls.${absent === keyName ? 'key' : 'crt'})`,
    );
  }
  const certPem = readNamedFile(files.cert, certName);
  const keyPem = readNamedFile(files.key, keyName);
  try {
    createSecureContext({ cert: certPem, key: keyPem });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'no PEM';
    throw new StartError(
      `${certName} and ${keyName} are not a PEM certificate and its key (${code}): ${files.cert}, ${files.key}`,
    );
  }
  return { certPem, keyPem: Secret.fromText(keyPem) };
}

function loadRoots(path: string | null, origin: string): string | null {
  if (path === null) return null;
  const pem = readNamedFile(path, origin);
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    if (certificates.length === 0) throw new TypeError('no certificate');
    for (const certificate of certificates) new X509Certificate(certificate);
  } catch {
    throw new StartError(
      `${origin} names the file ${path}, which must hold certificates in PEM (for example /etc/ssl/certs/ca-certificates.crt)`,
    );
  }
  return certificates.join('\n') + '\n';
}

function formatListen(address: ListenAddress): string {
  return address.host.includes(':') ? `[${address.host}]:${address.port}` : `${address.host}:${address.port}`;
}

function checkRelations(config: Config): void {
  const { adminListen, proxyListen } = config;
  if (!isLoopback(adminListen) && config.adminTls === null && !config.adminInsecure) {
    throw new StartError(
      `KEYVEIL_ADMIN_LISTEN=${formatListen(adminListen)} is reached from other machines, and the admin token would cross the network in clear: ` +
        'set KEYVEIL_ADMIN_TLS_CERT_FILE and KEYVEIL_ADMIN_TLS_KEY_FILE, or accept it by KEYVEIL_ADMIN_INSECURE=on',
    );
  }
  if (proxyListen.port !== 0 && formatListen(proxyListen) === formatListen(adminListen)) {
    throw new StartError(
      `KEYVEIL_PROXY_LISTEN and KEYVEIL_ADMIN_LISTEN are both ${formatListen(proxyListen)}: give them two ports (for example KEYVEIL_ADMIN_LISTEN=127.0.0.1:7081)`,
    );
  }
  if (config.bodyBufferBytes > config.bodyMemoryBytes) {
    throw new StartError(
      `KEYVEIL_BODY_BUFFER_BYTES (${config.bodyBufferBytes}) must not be more than KEYVEIL_BODY_MEMORY_BYTES (${config.bodyMemoryBytes}) (for example KEYVEIL_BODY_BUFFER_BYTES=1MiB)`,
    );
  }
}

function warningsOf(config: Omit<Config, 'warnings'>): string[] {
  const warnings: string[] = [];
  const proxy = formatListen(config.proxyListen);
  if (!isLoopback(config.proxyListen) && config.proxyTls === null) {
    warnings.push(
      `The proxy listens on ${proxy} without TLS: session tokens cross that network in clear. Keep it a private one, or set KEYVEIL_PROXY_TLS_CERT_FILE and KEYVEIL_PROXY_TLS_KEY_FILE.`,
    );
  }
  if (!isLoopback(config.adminListen) && config.adminTls === null) {
    warnings.push(
      `The admin API listens on ${formatListen(config.adminListen)} without TLS (KEYVEIL_ADMIN_INSECURE=on): its token crosses that network in clear.`,
    );
  }
  if (/^(?:0\.0\.0\.0|::)$/.test(config.proxyListen.host) && config.advertisedProxyUrl === null) {
    warnings.push(
      `The proxy listens on every address (${proxy}) and KEYVEIL_ADVERTISED_PROXY_URL is not set: sandboxes are told to use 127.0.0.1.`,
    );
  }
  return warnings;
}

/**
 * Reads the whole configuration. Throws a StartError of one line that names the variable or flag, the problem and an
 * example; nothing is opened but the files that settings name.
 */
export function loadConfig(options: LoadOptions = {}): Config {
  const sources = sourcesOf(options);
  refuseUnsafeRuntime(sources.env, options.execArgv ?? process.execArgv);
  refuseUnknownVariables(sources.env);
  const names = Object.keys(SETTINGS) as SettingName[];
  const values = Object.fromEntries(names.map((name) => [name, resolveSetting(name, sources)])) as SettingValues;
  const {
    adminTlsCertFile,
    adminTlsKeyFile,
    proxyTlsCertFile,
    proxyTlsKeyFile,
    upstreamCaFile,
    url: _url,
    ...rest
  } = values;
  const absolute = (path: string | null): string | null => (path === null ? null : resolve(sources.cwd, path));
  const checked = {
    ...rest,
    dataDir: resolve(sources.cwd, rest.dataDir),
    adminTls: loadTls({
      ...{ cert: absolute(adminTlsCertFile), key: absolute(adminTlsKeyFile) },
      ...{ certName: originOf('adminTlsCertFile', sources), keyName: originOf('adminTlsKeyFile', sources) },
    }),
    proxyTls: loadTls({
      ...{ cert: absolute(proxyTlsCertFile), key: absolute(proxyTlsKeyFile) },
      ...{ certName: originOf('proxyTlsCertFile', sources), keyName: originOf('proxyTlsKeyFile', sources) },
    }),
    upstreamCaPem: loadRoots(absolute(upstreamCaFile), originOf('upstreamCaFile', sources)),
    threadPoolSize: readThreadPoolSize(sources.env),
  };
  const config: Config = { ...checked, warnings: warningsOf(checked) };
  checkRelations(config);
  return config;
}

/** Reads what the commands need to reach a daemon, and nothing else. Throws a StartError as loadConfig does. */
export function loadClientConfig(options: LoadOptions = {}): ClientConfig {
  const sources = sourcesOf(options);
  return {
    dataDir: resolve(sources.cwd, resolveSetting('dataDir', sources)),
    url: resolveSetting('url', sources),
    adminToken: resolveSetting('adminToken', sources),
    adminTokenOrigin: secretOriginOf('adminToken', sources),
  };
}
