// Routes of /v1/vaults.
import { ADMIN_ONLY, READERS, type AdminApp, type AdminContext } from '../context.ts';
import { toPage, toPageQuery } from '../pages.ts';
import { answers, BODY_CODES, definedOnly, EmptyBody, LIST_CODES, ListQuery } from '../schemas/common.ts';
import {
  VaultCreate,
  VaultDeleted,
  VaultPage,
  VaultParams,
  vaultToWire,
  VaultUpdate,
  VaultWire,
} from '../schemas/vaults.ts';

const tags = ['vaults'];

export function registerVaultRoutes(app: AdminApp, context: AdminContext): void {
  const { vaults } = context.store;

  app.post(
    '/v1/vaults',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'createVault', summary: 'Create a vault' },
        body: VaultCreate,
        response: answers(VaultWire, BODY_CODES),
      },
    },
    async (request) => {
      const { display_name, metadata } = request.body;
      const vault = await vaults.create({ displayName: display_name, metadata: metadata ?? {} });
      context.recordWrite(request, { action: 'vault.create', objectId: vault.id });
      return vaultToWire(vault);
    },
  );

  app.get(
    '/v1/vaults',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'listVaults', summary: 'List vaults, newest first' },
        querystring: ListQuery,
        response: answers(VaultPage, LIST_CODES),
      },
    },
    async (request) => toPage(await vaults.list(toPageQuery(request.query)), vaultToWire),
  );

  app.get(
    '/v1/vaults/:vault_id',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'getVault', summary: 'Read a vault' },
        params: VaultParams,
        response: answers(VaultWire, ['not_found']),
      },
    },
    async (request) => vaultToWire(await vaults.get(request.params.vault_id)),
  );

  app.post(
    '/v1/vaults/:vault_id',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'updateVault', summary: 'Update a vault; omitted fields are kept' },
        params: VaultParams,
        body: VaultUpdate,
        response: answers(VaultWire, [...BODY_CODES, 'not_found', 'archived']),
      },
    },
    async (request) => {
      const { display_name, metadata } = request.body;
      const vault = await vaults.update(request.params.vault_id, definedOnly({ displayName: display_name, metadata }));
      context.recordWrite(request, { action: 'vault.update', objectId: vault.id });
      return vaultToWire(vault);
    },
  );

  registerVaultEnds(app, context);
}

function registerVaultEnds(app: AdminApp, context: AdminContext): void {
  const { vaults } = context.store;

  app.post(
    '/v1/vaults/:vault_id/archive',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{
          tags,
          operationId: 'archiveVault',
          summary: 'Archive a vault and its credentials; their values are purged',
        },
        params: VaultParams,
        body: EmptyBody,
        response: answers(VaultWire, [...BODY_CODES, 'not_found']),
      },
    },
    async (request) => {
      const vault = await vaults.archive(request.params.vault_id);
      context.recordWrite(request, { action: 'vault.archive', objectId: vault.id });
      return vaultToWire(vault);
    },
  );

  app.delete(
    '/v1/vaults/:vault_id',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'deleteVault', summary: 'Delete a vault and its credentials for good' },
        params: VaultParams,
        response: answers(VaultDeleted, ['not_found']),
      },
    },
    async (request) => {
      const id = request.params.vault_id;
      await vaults.delete(id);
      context.recordWrite(request, { action: 'vault.delete', objectId: id });
      return { id, type: 'vault_deleted' as const };
    },
  );
}
