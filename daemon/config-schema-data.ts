// Settings of the data plane: the proxy, its destinations, the swap and the veil.
import * as limits from '../model/limits.ts';
import * as parse from './config-parse.ts';
import { optional, secret, setting } from './config-setting.ts';

const KIB = 1024;

export const PROXY_SETTINGS = {
  proxyListen: setting(parse.parseListen, {
    variable: 'KEYVEIL_PROXY_LISTEN',
    fallback: '127.0.0.1:7080',
    group: 'Proxy',
    description: 'Address of the proxy.',
    example: '0.0.0.0:7080',
  }),
  advertisedProxyUrl: optional(parse.parseBaseUrl, {
    variable: 'KEYVEIL_ADVERTISED_PROXY_URL',
    group: 'Proxy',
    description:
      'Address of the proxy as sandboxes see it, for their variables. Without it, the address it listens on.',
    example: 'http://keyveil:7080',
  }),
  proxyTlsCertFile: optional(parse.parsePath, {
    variable: 'KEYVEIL_PROXY_TLS_CERT_FILE',
    group: 'Proxy',
    description:
      'PEM file of the certificate chain with which the proxy port itself serves TLS (an `https://` proxy URL).',
    example: '/etc/keyveil/proxy.crt',
  }),
  proxyTlsKeyFile: optional(parse.parsePath, {
    variable: 'KEYVEIL_PROXY_TLS_KEY_FILE',
    group: 'Proxy',
    description: 'PEM file of the key that goes with it.',
    example: '/etc/keyveil/proxy.key',
  }),
  interceptionOn: setting(parse.parseSwitch, {
    variable: 'KEYVEIL_MITM',
    fallback: 'on',
    group: 'Proxy',
    description:
      '`off` relays every tunnel unread and swaps nothing: a session whose vaults hold an active credential can then not be created.',
    example: 'off',
  }),
  passthroughHosts: setting(parse.parseHostList, {
    variable: 'KEYVEIL_PASSTHROUGH_HOSTS',
    fallback: '',
    group: 'Proxy',
    description: 'Hosts whose tunnels are relayed unread, for clients that pin certificates; nothing is swapped there.',
    example: 'pinned.example.com,*.banking.example',
  }),
  sessionTtlSeconds: setting(parse.integerWithin(1, limits.SESSION_TTL_MAX_SECONDS), {
    variable: 'KEYVEIL_SESSION_TTL_SECONDS',
    fallback: String(limits.SESSION_TTL_DEFAULT_SECONDS),
    group: 'Proxy',
    description: 'Seconds that a session lives when its creation names no `expires_in`.',
    example: '3600',
  }),
  reservedNames: setting(parse.parseNames, {
    variable: 'KEYVEIL_RESERVED_NAMES',
    fallback: '',
    group: 'Proxy',
    description: 'Names, beside the built-in ones, that no credential may take.',
    example: 'KUBECONFIG,DOCKER_HOST',
  }),
} as const;

export const DESTINATION_SETTINGS = {
  defaultNetworking: setting(parse.parseNetworking, {
    variable: 'KEYVEIL_DEFAULT_NETWORKING',
    fallback: 'unrestricted',
    group: 'Destinations',
    description: 'What sessions without an environment may connect to: `unrestricted`, `none`, or a list of hosts.',
    example: 'api.example.com,*.example.org',
  }),
  allowedPorts: setting(parse.parsePorts, {
    variable: 'KEYVEIL_ALLOWED_PORTS',
    fallback: '80,443,8080,8443',
    group: 'Destinations',
    description: 'Ports that can be connected to; `*` for all.',
    example: '443,8443',
  }),
  allowedPrivateCidrs: setting(parse.parseCidrList, {
    variable: 'KEYVEIL_ALLOWED_PRIVATE_CIDRS',
    fallback: '',
    group: 'Destinations',
    description: 'Private and other special ranges that can be connected to all the same.',
    example: '10.20.0.0/16,fd00:1234::/32',
  }),
  upstreamOverrides: setting(parse.parseOverrides, {
    variable: 'KEYVEIL_UPSTREAM_OVERRIDES',
    fallback: '',
    group: 'Destinations',
    description:
      'Sends a host elsewhere, as `--connect-to` of curl does: TLS still verifies the original name. The address that is named here counts as admitted by the operator: it is not checked for being private (a listener of Keyveil itself stays refused).',
    example: 'api.example.com:443=10.0.0.5:9443',
  }),
  upstreamCaFile: optional(parse.parsePath, {
    variable: 'KEYVEIL_UPSTREAM_CA_FILE',
    group: 'Destinations',
    description: 'PEM file of roots that upstreams are verified against, beside the public ones.',
    example: '/etc/keyveil/corporate-ca.pem',
  }),
  upstreamProxy: secret(parse.parseChainedProxy, {
    variable: 'KEYVEIL_UPSTREAM_PROXY',
    group: 'Destinations',
    description: 'Proxy through which upstream connections are chained by CONNECT.',
    example: 'http://user:password@proxy.example.com:3128',
  }),
  upstreamNoProxy: setting(parse.parseHostList, {
    variable: 'KEYVEIL_UPSTREAM_NO_PROXY',
    fallback: '',
    group: 'Destinations',
    description: 'Hosts that are reached without the chained proxy.',
    example: 'git.example.com,*.corp.example.com',
  }),
} as const;

export const SWAP_SETTINGS = {
  bodyBufferBytes: setting(parse.bytesAtLeast(KIB), {
    variable: 'KEYVEIL_BODY_BUFFER_BYTES',
    fallback: String(limits.BODY_BUFFER_DEFAULT_BYTES),
    group: 'Swap and veil',
    description: 'Bodies of known length up to this size are read whole.',
    example: '4MiB',
  }),
  bodyMemoryBytes: setting(parse.bytesAtLeast(64 * KIB), {
    variable: 'KEYVEIL_BODY_MEMORY_BYTES',
    fallback: String(limits.BODY_MEMORY_DEFAULT_BYTES),
    group: 'Swap and veil',
    description:
      'Memory of all buffered bodies together; one session gets at most a quarter. Beyond it bodies are spooled or streamed.',
    example: '256MiB',
  }),
  spoolBytes: setting(parse.bytesAtLeast(0), {
    variable: 'KEYVEIL_SPOOL_BYTES',
    fallback: String(limits.SPOOL_DEFAULT_BYTES),
    group: 'Swap and veil',
    description: 'Disk space of all spooled bodies together; 0 spools nothing.',
    example: '1GiB',
  }),
  swapGrowthBytes: setting(parse.bytesAtLeast(KIB), {
    variable: 'KEYVEIL_SWAP_GROWTH_BYTES',
    fallback: String(limits.SWAP_GROWTH_DEFAULT_BYTES),
    group: 'Swap and veil',
    description: 'Bytes that swapping may add to one request; more is refused with 413.',
    example: '1MiB',
  }),
  veilOn: setting(parse.parseSwitch, {
    variable: 'KEYVEIL_VEIL',
    fallback: 'on',
    group: 'Swap and veil',
    description: '`off` leaves responses as they are: an upstream that echoes a secret then hands it to the sandbox.',
    example: 'off',
  }),
  veilIdleMs: setting(parse.integerWithin(1, 10_000), {
    variable: 'KEYVEIL_VEIL_IDLE_MS',
    fallback: String(limits.VEIL_IDLE_DEFAULT_MS),
    group: 'Swap and veil',
    description:
      'Milliseconds without a byte from the upstream, in a body of unknown length, after which the bytes that the veil holds back leave. It must be longer than a round trip to the farthest upstream.',
    example: '1000',
  }),
} as const;
