// Routes of /v1/environments.
import type { z } from 'zod';
import type { EnvironmentPatch, PartialNetworking } from '../../model/environment.ts';
import type { EnvironmentNetworking } from '../../model/networking.ts';
import { ADMIN_ONLY, READERS, type AdminApp, type AdminContext } from '../context.ts';
import { toPage, toPageQuery } from '../pages.ts';
import { answers, BODY_CODES, definedOnly, EmptyBody, LIST_CODES, ListQuery } from '../schemas/common.ts';
import {
  EnvironmentCreate,
  EnvironmentDeleted,
  EnvironmentPage,
  EnvironmentParams,
  environmentToWire,
  EnvironmentUpdate,
  EnvironmentWire,
} from '../schemas/environments.ts';
import type { EnvironmentNetworkingInput, EnvironmentNetworkingPatchInput } from '../schemas/networking.ts';

const tags = ['environments'];

function toNetworking(wire: z.output<typeof EnvironmentNetworkingInput>): EnvironmentNetworking {
  if (wire.type === 'unrestricted') return { type: 'unrestricted' };
  return {
    type: 'limited',
    allowedHosts: wire.allowed_hosts ?? [],
    allowPackageManagers: wire.allow_package_managers ?? false,
  };
}

function toPartialNetworking(wire: z.output<typeof EnvironmentNetworkingPatchInput>): PartialNetworking {
  return definedOnly({
    type: wire.type,
    allowedHosts: wire.allowed_hosts ?? undefined,
    allowPackageManagers: wire.allow_package_managers ?? undefined,
  });
}

function toPatch(body: z.output<typeof EnvironmentUpdate>): EnvironmentPatch {
  const networking = body.config?.networking ?? undefined;
  return definedOnly({
    name: body.name,
    description: body.description,
    networking: networking === undefined ? undefined : toPartialNetworking(networking),
    allowedPrivateCidrs: body.config?.allowed_private_cidrs ?? undefined,
    metadata: body.metadata,
  });
}

export function registerEnvironmentRoutes(app: AdminApp, context: AdminContext): void {
  registerEnvironmentReads(app, context);
  registerEnvironmentWrites(app, context);
  registerEnvironmentEnds(app, context);
}

function registerEnvironmentReads(app: AdminApp, context: AdminContext): void {
  const { environments } = context.store;

  app.get(
    '/v1/environments',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'listEnvironments', summary: 'List environments, newest first' },
        querystring: ListQuery,
        response: answers(EnvironmentPage, LIST_CODES),
      },
    },
    async (request) => {
      const page = await environments.list(toPageQuery(request.query));
      return toPage(page, environmentToWire);
    },
  );

  app.get(
    '/v1/environments/:environment_id',
    {
      config: { access: READERS },
      schema: {
        ...{ tags, operationId: 'getEnvironment', summary: 'Read an environment' },
        params: EnvironmentParams,
        response: answers(EnvironmentWire, ['not_found']),
      },
    },
    async (request) => environmentToWire(await environments.get(request.params.environment_id)),
  );
}

function registerEnvironmentWrites(app: AdminApp, context: AdminContext): void {
  const { environments } = context.store;

  app.post(
    '/v1/environments',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'createEnvironment', summary: 'Create an environment' },
        body: EnvironmentCreate,
        response: answers(EnvironmentWire, BODY_CODES),
      },
    },
    async (request) => {
      const { name, description, config, metadata } = request.body;
      const networking = config?.networking ?? null;
      const environment = await environments.create({
        name,
        description: description ?? null,
        networking: networking === null ? context.sessionSettings.defaultNetworking : toNetworking(networking),
        allowedPrivateCidrs: config?.allowed_private_cidrs ?? [],
        metadata: metadata ?? {},
      });
      context.recordWrite(request, { action: 'environment.create', objectId: environment.id });
      return environmentToWire(environment);
    },
  );

  app.post(
    '/v1/environments/:environment_id',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'updateEnvironment', summary: 'Update an environment; omitted fields are kept' },
        params: EnvironmentParams,
        body: EnvironmentUpdate,
        response: answers(EnvironmentWire, [...BODY_CODES, 'archived', 'not_found']),
      },
    },
    async (request) => {
      const environment = await environments.update(request.params.environment_id, toPatch(request.body));
      context.recordWrite(request, { action: 'environment.update', objectId: environment.id });
      return environmentToWire(environment);
    },
  );
}

function registerEnvironmentEnds(app: AdminApp, context: AdminContext): void {
  const { environments } = context.store;

  app.post(
    '/v1/environments/:environment_id/archive',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'archiveEnvironment', summary: 'Archive an environment; running sessions keep it' },
        params: EnvironmentParams,
        body: EmptyBody,
        response: answers(EnvironmentWire, [...BODY_CODES, 'not_found']),
      },
    },
    async (request) => {
      const environment = await environments.archive(request.params.environment_id);
      context.recordWrite(request, { action: 'environment.archive', objectId: environment.id });
      return environmentToWire(environment);
    },
  );

  app.delete(
    '/v1/environments/:environment_id',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'deleteEnvironment', summary: 'Delete an environment that no active session uses' },
        params: EnvironmentParams,
        response: answers(EnvironmentDeleted, ['not_found', 'environment_in_use']),
      },
    },
    async (request) => {
      const id = request.params.environment_id;
      await environments.delete(id);
      context.recordWrite(request, { action: 'environment.delete', objectId: id });
      return { id, type: 'environment_deleted' as const };
    },
  );
}
