// Routes of /v1/vaults/{vault_id}/credentials.
import type { z } from 'zod';
import { isLowEntropy, type Credential, type CredentialPatch, type NewCredential } from '../../model/credential.ts';
import { KeyveilError } from '../../model/errors.ts';
import { VEIL_VALUE_BYTES_MIN } from '../../model/limits.ts';
import type { Secret } from '../../model/secret.ts';
import { ADMIN_ONLY, READERS, type AdminApp, type AdminContext } from '../context.ts';
import { toPage, toPageQuery } from '../pages.ts';
import { decideBreadth } from '../public-suffix.ts';
import { answers, BODY_CODES, definedOnly, EmptyBody, LIST_CODES, ListQuery } from '../schemas/common.ts';
import {
  CredentialCreate,
  CredentialDeleted,
  CredentialListParams,
  CredentialPage,
  CredentialParams,
  credentialToWire,
  CredentialUpdate,
  CredentialWire,
  type CredentialWarning,
} from '../schemas/credentials.ts';

const tags = ['credentials'];
const collection = '/v1/vaults/:vault_id/credentials';
const single = `${collection}/:credential_id`;

/** What a person should know about a credential that was just written; the value is null when it did not change. */
function warningsOf(credential: Credential, value: Secret | null): z.output<typeof CredentialWarning>[] {
  const { networking } = credential;
  const hosts = networking.type === 'limited' ? networking.allowedHosts : [];
  return [
    ...(value !== null && isLowEntropy(value) ? (['low_entropy_value'] as const) : []),
    ...(value !== null && value.byteLength < VEIL_VALUE_BYTES_MIN ? (['value_not_veiled'] as const) : []),
    ...(hosts.some((host) => decideBreadth(host) === 'private_suffix') ? (['private_suffix_wildcard'] as const) : []),
  ];
}

function requireOpenName(name: string, context: AdminContext): void {
  if (!context.sessionSettings.isReserved(name)) return;
  throw new KeyveilError(
    'secret_name_reserved',
    `auth.secret_name ${name} is reserved: the sandbox's tools or Keyveil give it a meaning. Choose another name.`,
    { param: 'auth.secret_name' },
  );
}

function toNewCredential(vaultId: string, body: z.output<typeof CredentialCreate>): NewCredential {
  const { auth } = body;
  return {
    vaultId,
    displayName: body.display_name ?? null,
    secretName: auth.secret_name,
    secretValue: auth.secret_value,
    placeholderPrefix: auth.placeholder_prefix ?? '',
    networking: auth.networking,
    injectionLocation: auth.injection_location ?? { header: true, body: false },
    metadata: body.metadata ?? {},
  };
}

function toPatch(body: z.output<typeof CredentialUpdate>): CredentialPatch {
  const location = body.auth?.injection_location;
  return definedOnly({
    displayName: body.display_name,
    metadata: body.metadata,
    secretValue: body.auth?.secret_value,
    networking: body.auth?.networking,
    injectionLocation: location === undefined ? undefined : definedOnly(location),
  });
}

export function registerCredentialRoutes(app: AdminApp, context: AdminContext): void {
  registerCredentialReads(app, context);
  registerCredentialWrites(app, context);
  registerCredentialEnds(app, context);
}

function registerCredentialReads(app: AdminApp, context: AdminContext): void {
  const { credentials } = context.store;

  app.get(
    collection,
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'listCredentials', summary: 'List the credentials of a vault, newest first' },
        params: CredentialListParams,
        querystring: ListQuery,
        response: answers(CredentialPage, [...LIST_CODES, 'not_found']),
      },
    },
    async (request) => {
      const page = await credentials.list(request.params.vault_id, toPageQuery(request.query));
      return toPage(page, credentialToWire);
    },
  );

  app.get(
    single,
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'getCredential', summary: 'Read a credential; never its value' },
        params: CredentialParams,
        response: answers(CredentialWire, ['not_found']),
      },
    },
    async (request) => {
      const { vault_id, credential_id } = request.params;
      return credentialToWire(await credentials.get(vault_id, credential_id));
    },
  );
}

function registerCredentialWrites(app: AdminApp, context: AdminContext): void {
  const { credentials } = context.store;

  app.post(
    collection,
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'createCredential', summary: 'Create a credential' },
        params: CredentialListParams,
        body: CredentialCreate,
        response: answers(CredentialWire, [
          ...BODY_CODES,
          ...(['secret_name_reserved', 'secret_value_not_header_safe', 'unsupported_auth_type'] as const),
          ...(['host_too_broad', 'vault_full', 'archived', 'not_found', 'secret_name_taken'] as const),
        ]),
      },
    },
    async (request) => {
      const { auth } = request.body;
      requireOpenName(auth.secret_name, context);
      const credential = await credentials.create(toNewCredential(request.params.vault_id, request.body));
      context.recordWrite(request, { action: 'credential.create', objectId: credential.id });
      return { ...credentialToWire(credential), warnings: warningsOf(credential, auth.secret_value) };
    },
  );

  app.post(
    single,
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'updateCredential', summary: 'Update a credential; a new secret_value rotates it' },
        params: CredentialParams,
        body: CredentialUpdate,
        response: answers(CredentialWire, [
          ...BODY_CODES,
          ...(['immutable_field', 'secret_value_not_header_safe', 'unsupported_auth_type'] as const),
          ...([
            'host_too_broad',
            'credential_not_mountable',
            'credential_unreadable',
            'archived',
            'not_found',
          ] as const),
        ]),
      },
    },
    async (request) => {
      const { vault_id, credential_id } = request.params;
      const patch = toPatch(request.body);
      const credential = await credentials.update(vault_id, credential_id, patch);
      const action = patch.secretValue === undefined ? 'credential.update' : 'credential.rotate';
      context.recordWrite(request, { action, objectId: credential.id });
      return { ...credentialToWire(credential), warnings: warningsOf(credential, patch.secretValue ?? null) };
    },
  );
}

function registerCredentialEnds(app: AdminApp, context: AdminContext): void {
  const { credentials } = context.store;

  app.post(
    `${single}/archive`,
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'archiveCredential', summary: 'Archive a credential: its value is purged' },
        params: CredentialParams,
        body: EmptyBody,
        response: answers(CredentialWire, [...BODY_CODES, 'not_found']),
      },
    },
    async (request) => {
      const { vault_id, credential_id } = request.params;
      const credential = await credentials.archive(vault_id, credential_id);
      context.recordWrite(request, { action: 'credential.archive', objectId: credential.id });
      return credentialToWire(credential);
    },
  );

  app.delete(
    single,
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'deleteCredential', summary: 'Delete a credential for good' },
        params: CredentialParams,
        response: answers(CredentialDeleted, ['not_found']),
      },
    },
    async (request) => {
      const { vault_id, credential_id } = request.params;
      await credentials.delete(vault_id, credential_id);
      context.recordWrite(request, { action: 'credential.delete', objectId: credential_id });
      return { id: credential_id, type: 'vault_credential_deleted' as const };
    },
  );
}
