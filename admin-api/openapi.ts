// The OpenAPI 3.1 document: generated from the routes' zod schemas, then completed and trimmed.
import {
  createJsonSchemaTransform,
  createJsonSchemaTransformObject,
  serializerCompiler,
  validatorCompiler,
} from 'fastify-type-provider-zod';
import type { FastifyDynamicSwaggerOptions, SwaggerTransform } from '@fastify/swagger';
import type { AdminApp, RouteAccess } from './context.ts';
import { EmptyBody } from './schemas/common.ts';

const DESCRIPTION =
  'Vaults, credentials and environments keep the wire shapes of the Claude Managed Agents API; sessions are of their own kind. ' +
  'anthropic-version, anthropic-beta and ?beta=true are accepted and ignored.';

const SECURITY_SCHEMES = {
  apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
  bearer: { type: 'http', scheme: 'bearer' },
} as const;

const toJsonSchema = createJsonSchemaTransform({});

/** Marks public routes and names the scopes of the others. */
const transform: SwaggerTransform = (input) => {
  // A call without a body takes an empty object too, but there is nothing in that to describe.
  const { body, ...bodiless } = input.schema;
  const result = toJsonSchema(body === EmptyBody ? { ...input, schema: bodiless } : input);
  const access: RouteAccess = input.route.config?.access ?? ['admin'];
  if (input.schema?.hide === true) return result;
  const schema =
    access === 'public'
      ? { ...result.schema, security: [] }
      : { ...result.schema, description: `Scopes: ${access.join(', ')}.` };
  return { ...result, schema };
};

/** Options of @fastify/swagger. */
function openApiOptions(version: string): FastifyDynamicSwaggerOptions {
  return {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Keyveil admin API',
        version,
        description: DESCRIPTION,
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      components: { securitySchemes: SECURITY_SCHEMES },
      security: [{ apiKey: [] }, { bearer: [] }],
    },
    transform,
    transformObject: createJsonSchemaTransformObject({}),
  };
}

function referencedSchemas(value: unknown, found: Set<string>): Set<string> {
  if (Array.isArray(value)) for (const item of value) referencedSchemas(item, found);
  else if (typeof value === 'object' && value !== null) {
    for (const [key, child] of Object.entries(value)) {
      const name =
        key === '$ref' && typeof child === 'string' ? /^#\/components\/schemas\/(.+)$/.exec(child)?.[1] : undefined;
      if (name === undefined) referencedSchemas(child, found);
      else found.add(name);
    }
  }
  return found;
}

export interface Document {
  readonly paths?: unknown;
  readonly components?: { readonly schemas?: Readonly<Record<string, unknown>> };
}

// What zod writes that says nothing: the bounds of safe integers. And answers may get more fields in later versions, so
// that no client should refuse them.
function isNoise(key: string, value: unknown): boolean {
  if (key === 'minimum') return value === Number.MIN_SAFE_INTEGER;
  return key === 'maximum' && value === Number.MAX_SAFE_INTEGER;
}

function tidy(value: unknown, isAnswer: boolean): unknown {
  if (Array.isArray(value)) return value.map((item) => tidy(item, isAnswer));
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(
    ([key, child]) => !isNoise(key, child) && !(isAnswer && key === 'additionalProperties' && child === false),
  );
  return Object.fromEntries(kept.map(([key, child]) => [key, tidy(child, isAnswer)]));
}

/**
 * The document as it is served: without component schemas that no route refers to, directly or through others, and
 * without noise. Components are all of answers; bodies stand within their routes.
 */
function finishDocument(document: Document): Document {
  const schemas = document.components?.schemas ?? {};
  const used = referencedSchemas(document.paths, new Set());
  for (const name of used) referencedSchemas(schemas[name], used);
  const kept = Object.fromEntries(
    Object.entries(schemas)
      .filter(([name]) => used.has(name))
      .map(([name, schema]) => [name, tidy(schema, true)]),
  );
  return {
    ...document,
    paths: tidy(document.paths, false),
    components: { ...document.components, schemas: kept },
  };
}

export interface DescribedRoutes {
  readonly version: string;
  /** Makes a server for this document alone. */
  readonly createApp: () => AdminApp;
  readonly register: (scope: AdminApp) => void;
}

/**
 * The document of routes: made of a server of its own that never listens, so that a daemon that is never asked for it
 * loads nothing of what makes it.
 */
export async function describeRoutes({ version, createApp, register }: DescribedRoutes): Promise<Document> {
  const { fastifySwagger } = await import('@fastify/swagger');
  const app = createApp();
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.register(fastifySwagger, openApiOptions(version));
  app.register(async (scope: AdminApp) => register(scope));
  await app.ready();
  const document = finishDocument(app.swagger());
  await app.close();
  return document;
}
