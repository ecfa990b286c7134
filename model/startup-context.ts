// The environment variables that a sandbox starts with.
import {
  CA_BUNDLE_VARIABLES,
  CA_VARIABLES,
  CLIENT_SETTINGS,
  NO_PROXY_VARIABLES,
  PROXY_VARIABLES,
} from './reserved-names.ts';
import type { Session } from './session.ts';

const NO_PROXY_VALUE = 'localhost,127.0.0.1,::1';

/** What the variables are built from. */
export interface StartupContextInput {
  readonly session: Pick<Session, 'id' | 'caDirectory' | 'mounts'>;
  /** Base of the proxy's address as sandboxes see it, such as `http://127.0.0.1:7080`. */
  readonly advertisedProxyUrl: string;
  /** The session's token; null leaves out the variables that hold it. */
  readonly token: string | null;
}

function proxyUrl(base: string, userinfo: string): string {
  const url = new URL(base);
  return `${url.protocol}//${userinfo}@${url.host}`;
}

/** Variables in order of precedence: the platform's first, then `secret_name → placeholder`, which never overwrites. */
export function buildEnvironmentVariables(input: StartupContextInput): Readonly<Record<string, string>> {
  const variables = new Map<string, string>();
  const { session, token } = input;
  if (token !== null) {
    const url = proxyUrl(input.advertisedProxyUrl, `${session.id}:${token}`);
    for (const name of PROXY_VARIABLES) variables.set(name, url);
  }
  for (const name of NO_PROXY_VARIABLES) variables.set(name, NO_PROXY_VALUE);
  const directory = session.caDirectory.replace(/\/+$/, '');
  for (const name of CA_VARIABLES) variables.set(name, `${directory}/ca.pem`);
  for (const name of CA_BUNDLE_VARIABLES) variables.set(name, `${directory}/ca-bundle.pem`);
  for (const [name, value] of Object.entries(CLIENT_SETTINGS)) variables.set(name, value);
  for (const mount of session.mounts) {
    if (!variables.has(mount.secretName)) variables.set(mount.secretName, mount.placeholder);
  }
  return Object.fromEntries(variables);
}
