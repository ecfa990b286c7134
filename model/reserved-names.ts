// Names that no credential may take, because a sandbox's tools or Keyveil itself give them a meaning.

/** Variables that change how programs start or where they look for code. */
const SYSTEM_NAMES: readonly string[] = [
  'PATH',
  'HOME',
  'SHELL',
  'USER',
  'TMPDIR',
  'IFS',
  'ENV',
  'BASH_ENV',
  'NODE_OPTIONS',
  'PYTHONPATH',
  'PYTHONSTARTUP',
  'PERL5OPT',
  'RUBYOPT',
  'JAVA_TOOL_OPTIONS',
  'GIT_SSH_COMMAND',
];

/** Beginnings of names that are reserved as a whole. */
export const RESERVED_PREFIXES: readonly string[] = ['LD_', 'DYLD_', 'KEYVEIL_'];

/** Variables with the proxy's address; their values hold the session's token. */
export const PROXY_VARIABLES: readonly string[] = [
  'HTTPS_PROXY',
  'HTTP_PROXY',
  'ALL_PROXY',
  'https_proxy',
  'http_proxy',
  'all_proxy',
];

/** Variables that name hosts which are not proxied. */
export const NO_PROXY_VARIABLES: readonly string[] = ['NO_PROXY', 'no_proxy'];

/** Variables that add the CA to the client's own roots. */
export const CA_VARIABLES: readonly string[] = ['NODE_EXTRA_CA_CERTS'];

/** Variables that replace the client's roots, and so name the full bundle. */
export const CA_BUNDLE_VARIABLES: readonly string[] = [
  'SSL_CERT_FILE',
  'CURL_CA_BUNDLE',
  'REQUESTS_CA_BUNDLE',
  'GIT_SSL_CAINFO',
  'PIP_CERT',
  'AWS_CA_BUNDLE',
  'DENO_CERT',
  'CARGO_HTTP_CAINFO',
  'NPM_CONFIG_CAFILE',
  'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH',
];

/** Variables with fixed values that make clients use the proxy and its login. */
export const CLIENT_SETTINGS: Readonly<Record<string, string>> = {
  NODE_USE_ENV_PROXY: '1',
  GIT_HTTP_PROXY_AUTHMETHOD: 'basic',
};

/** Every reserved name in upper case, without what the operator adds. */
export const RESERVED_NAMES: readonly string[] = [
  ...SYSTEM_NAMES,
  ...[...PROXY_VARIABLES, ...NO_PROXY_VARIABLES].filter((name) => name === name.toUpperCase()),
  ...CA_VARIABLES,
  ...CA_BUNDLE_VARIABLES,
  ...Object.keys(CLIENT_SETTINGS),
];

/** Decides, without regard to case, whether a credential may not have this name. */
export type ReservedNameCheck = (name: string) => boolean;

/** Compiles the check with the operator's own additions (`KEYVEIL_RESERVED_NAMES`). */
export function createReservedNameCheck(extra: readonly string[]): ReservedNameCheck {
  const names = new Set([...RESERVED_NAMES, ...extra.map((name) => name.toUpperCase())]);
  return (name) => {
    const upper = name.toUpperCase();
    return names.has(upper) || RESERVED_PREFIXES.some((prefix) => upper.startsWith(prefix));
  };
}
