// Compiles a session's rows into what the data plane decides by; what can't be read denies.
import { EVERY_HOST, type HostSet } from '../model/host-pattern.ts';
import { parseCidr, type Cidr } from '../model/ip-class.ts';
import { compileAdmission, compileCoverage, type EnvironmentNetworking } from '../model/networking.ts';
import type { PolicyCredential, SessionPolicy } from '../model/ports.ts';
import { decideSessionStatus, type SessionStatus } from '../model/session.ts';
import { parseCredentialNetworking, parseEnvironmentNetworking, parseTexts } from './codecs.ts';
import { DENY_ALL } from './environments.ts';
import type { OpenedValues } from './opened-values.ts';
import { isSameRow, type PolicyCredentialRow, type PolicyRows } from './policy-rows.ts';

/** A credential and the row that it was compiled from. */
interface CompiledCredential {
  readonly row: PolicyCredentialRow;
  readonly credential: PolicyCredential;
}

/** By credential id. */
export type CompiledCredentials = ReadonlyMap<string, CompiledCredential>;

type MountableRow = PolicyCredentialRow & {
  readonly placeholder: string;
  readonly inject_header: number;
  readonly inject_body: number;
};

function isMountableRow(row: PolicyCredentialRow): row is MountableRow {
  return row.placeholder !== null && row.inject_header !== null && row.inject_body !== null;
}

function compileCredential(row: MountableRow, values: OpenedValues): PolicyCredential {
  const networking = parseCredentialNetworking(row.networking);
  return {
    id: row.id,
    vaultId: row.vault_id,
    secretName: row.secret_name,
    placeholder: row.placeholder,
    // Networking that can't be read was edited outside Keyveil, and then `open` refuses: a request that holds the
    // placeholder is refused wherever it goes.
    coverage: networking === null ? EVERY_HOST : compileCoverage(networking),
    header: row.inject_header === 1,
    body: row.inject_body === 1,
    secretVersion: row.secret_version,
    open: () => values.open(row),
  };
}

/** Compiles the mountable rows; those that are as they were keep their objects. */
export function compileCredentials(
  rows: readonly PolicyCredentialRow[],
  values: OpenedValues,
  before?: CompiledCredentials,
): CompiledCredentials {
  const compiled = new Map<string, CompiledCredential>();
  for (const row of rows.filter(isMountableRow)) {
    const known = before?.get(row.id);
    const isSame = known !== undefined && isSameRow(known.row, row);
    compiled.set(row.id, isSame ? known : { row, credential: compileCredential(row, values) });
  }
  return compiled;
}

interface Egress {
  readonly admission: HostSet;
  readonly allowedPrivateCidrs: readonly Cidr[];
}

const NO_EGRESS: Egress = { admission: compileAdmission(DENY_ALL), allowedPrivateCidrs: [] };

function compileEgress(rows: PolicyRows, defaultNetworking: EnvironmentNetworking): Egress {
  const { session, environment } = rows;
  if (session.environment_id === null)
    return { admission: compileAdmission(defaultNetworking), allowedPrivateCidrs: [] };
  if (environment === undefined) return NO_EGRESS;
  const networking = parseEnvironmentNetworking(environment.networking);
  const texts = parseTexts(environment.allowed_private_cidrs);
  const cidrs = texts?.map(parseCidr).filter((cidr) => cidr !== null);
  if (networking === null || cidrs === undefined || cidrs.length !== texts?.length) return NO_EGRESS;
  return { admission: compileAdmission(networking), allowedPrivateCidrs: cidrs };
}

/** State of the rows' session at a moment. */
export function statusOf({ session }: PolicyRows, nowMs: number): SessionStatus {
  const { archived_at: archivedAt, expires_at: expiresAt, suspended_at: suspendedAt } = session;
  return decideSessionStatus({ archivedAt, expiresAt, suspendedAt }, nowMs);
}

export interface PolicyContext {
  readonly defaultNetworking: EnvironmentNetworking;
  readonly nowMs: number;
}

export function compilePolicy(
  rows: PolicyRows,
  credentials: CompiledCredentials,
  context: PolicyContext,
): SessionPolicy {
  const { session } = rows;
  return {
    sessionId: session.id,
    status: statusOf(rows, context.nowMs),
    expiresAt: session.expires_at,
    tokenHash: session.token_hash,
    environmentId: session.environment_id,
    ...compileEgress(rows, context.defaultNetworking),
    credentials: [...credentials.values()].map(({ credential }) => credential),
    archived: rows.archived.map(({ id, secret_name: secretName, placeholder }) => ({
      credentialId: id,
      secretName,
      placeholder,
    })),
    activeCredentialCount: rows.credentials.length,
    emergencyStop: rows.emergencyStop,
    denialLimit: session.denial_limit,
  };
}
