// Settings of the process, the admin API, the audit log and the command line.
import * as limits from '../model/limits.ts';
import * as parse from './config-parse.ts';
import { optional, secret, setting } from './config-setting.ts';

const MIB = 1024 * 1024;

export const BASIC_SETTINGS = {
  dataDir: setting(parse.parsePath, {
    variable: 'KEYVEIL_DATA_DIR',
    fallback: './data',
    group: 'Basics',
    description:
      'Directory of the databases, the Unix socket and the spool; made with mode 0700. Relative to the working directory.',
    example: '/var/lib/keyveil',
  }),
  masterKey: secret(parse.parseMasterKey, {
    variable: 'KEYVEIL_MASTER_KEY',
    group: 'Basics',
    description:
      'Key that seals every value: 32 random bytes in base64. Without it `master.key` in the data directory is used, and made on the first start with mode 0600.',
    example: '$(openssl rand -base64 32)',
  }),
  masterKeysPrevious: secret(parse.parseMasterKeys, {
    variable: 'KEYVEIL_MASTER_KEY_PREVIOUS',
    group: 'Basics',
    description:
      'Earlier master keys, separated by commas: they open values that were sealed before a rotation, and seal nothing.',
    example: '$(cat /run/secrets/old-master-key)',
  }),
  logLevel: setting(parse.oneOf(['debug', 'info', 'warn', 'error', 'silent']), {
    variable: 'KEYVEIL_LOG_LEVEL',
    fallback: 'info',
    group: 'Basics',
    description: 'Least severe lines that are logged. `debug` has one line per request.',
    example: 'warn',
  }),
  workers: setting(parse.integerWithin(1, 64), {
    variable: 'KEYVEIL_WORKERS',
    fallback: '1',
    group: 'Basics',
    description: 'Processes that share the proxy port.',
    example: '2',
  }),
  drainSeconds: setting(parse.integerWithin(0, 3600), {
    variable: 'KEYVEIL_DRAIN_SECONDS',
    fallback: String(limits.DRAIN_DEFAULT_SECONDS),
    group: 'Basics',
    description: 'Seconds that requests in flight get to end after SIGTERM.',
    example: '60',
  }),
} as const;

export const ADMIN_SETTINGS = {
  adminListen: setting(parse.parseListen, {
    variable: 'KEYVEIL_ADMIN_LISTEN',
    fallback: '127.0.0.1:7081',
    group: 'Admin API',
    description: 'Address of the admin API. Beyond loopback it needs TLS files, or `KEYVEIL_ADMIN_INSECURE=on`.',
    example: '[::1]:7081',
  }),
  adminToken: secret(parse.tokenAtLeast(limits.ADMIN_TOKEN_CHARACTERS_MIN), {
    variable: 'KEYVEIL_ADMIN_TOKEN',
    group: 'Admin API',
    description: `Token of the admin API, at least ${limits.ADMIN_TOKEN_CHARACTERS_MIN} characters. Without it \`admin-token\` in the data directory is used, and made on the first start with mode 0600.`,
    example: '$(openssl rand -base64 32)',
  }),
  adminHosts: setting(parse.parseHostList, {
    variable: 'KEYVEIL_ADMIN_HOSTS',
    fallback: '',
    group: 'Admin API',
    description:
      'Names, beside `localhost` and IP addresses, under which the admin API answers (a guard against DNS rebinding).',
    example: 'keyveil.internal.example.com',
  }),
  adminTlsCertFile: optional(parse.parsePath, {
    variable: 'KEYVEIL_ADMIN_TLS_CERT_FILE',
    group: 'Admin API',
    description: 'PEM file of the certificate chain with which the admin API serves TLS.',
    example: '/etc/keyveil/admin.crt',
  }),
  adminTlsKeyFile: optional(parse.parsePath, {
    variable: 'KEYVEIL_ADMIN_TLS_KEY_FILE',
    group: 'Admin API',
    description: 'PEM file of the key that goes with it.',
    example: '/etc/keyveil/admin.key',
  }),
  adminInsecure: setting(parse.parseSwitch, {
    variable: 'KEYVEIL_ADMIN_INSECURE',
    fallback: 'off',
    group: 'Admin API',
    description:
      '`on` lets the admin API listen beyond loopback in clear: its token then crosses that network in clear.',
    example: 'on',
  }),
  metricsPublic: setting(parse.parseSwitch, {
    variable: 'KEYVEIL_METRICS_PUBLIC',
    fallback: 'off',
    group: 'Admin API',
    description: '`on` serves `GET /metrics` without a token.',
    example: 'on',
  }),
} as const;

export const AUDIT_SETTINGS = {
  auditRetentionDays: setting(parse.integerWithin(1, 36_500), {
    variable: 'KEYVEIL_AUDIT_RETENTION_DAYS',
    fallback: String(limits.AUDIT_RETENTION_DEFAULT_DAYS),
    group: 'Audit and limits',
    description: 'Days that audit events are kept.',
    example: '90',
  }),
  auditBytesMax: setting(parse.bytesAtLeast(MIB), {
    variable: 'KEYVEIL_AUDIT_MAX_BYTES',
    fallback: String(limits.AUDIT_DEFAULT_BYTES_MAX),
    group: 'Audit and limits',
    description: 'Size of the audit database beyond which the oldest events are removed.',
    example: '10GiB',
  }),
  denialLimit: setting(parse.parseOptionalCount, {
    variable: 'KEYVEIL_DENIAL_LIMIT',
    fallback: 'off',
    group: 'Audit and limits',
    description:
      'Refusals in a row (or three times as many within a minute) after which a session is suspended until an operator resumes it; `off` for none. A session can have a limit of its own.',
    example: '20',
  }),
  sessionRequestsMax: setting(parse.integerWithin(1, 1_000_000), {
    variable: 'KEYVEIL_SESSION_REQUESTS_MAX',
    fallback: String(limits.SESSION_REQUESTS_DEFAULT_MAX),
    group: 'Audit and limits',
    description: 'Requests that one session may have under way at once.',
    example: '256',
  }),
  sessionRequestsPerSecond: setting(parse.parseOptionalCount, {
    variable: 'KEYVEIL_SESSION_REQUESTS_PER_SECOND',
    fallback: 'off',
    group: 'Audit and limits',
    description: 'Requests that one session may begin per second; `off` for no limit.',
    example: '100',
  }),
} as const;

export const CLIENT_SETTINGS = {
  url: optional(parse.parseBaseUrl, {
    variable: 'KEYVEIL_URL',
    group: 'Command line',
    description:
      'Address of the admin API for the other commands; without it, the Unix socket in the data directory. The daemon ignores it.',
    example: 'https://keyveil.internal.example.com:7081',
  }),
} as const;
