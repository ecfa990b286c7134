// Routes of /v1/sessions.
import type { z } from 'zod';
import type { NewSession, Session } from '../../model/session.ts';
import { ADMIN_ONLY, SESSION_BROKERS, SESSION_READERS, type AdminApp, type AdminContext } from '../context.ts';
import { toPage, toPageQuery } from '../pages.ts';
import { answers, BODY_CODES, definedOnly, EmptyBody, LIST_CODES, ListQuery } from '../schemas/common.ts';
import {
  CA_DIRECTORY_DEFAULT,
  SessionCreate,
  SessionPage,
  SessionParams,
  sessionToWire,
  SessionUpdate,
  SessionWire,
} from '../schemas/sessions.ts';

const tags = ['sessions'];

function expiryOf(seconds: number | null, nowMs: number): number | null {
  return seconds === null ? null : nowMs + seconds * 1000;
}

function toNewSession(body: z.output<typeof SessionCreate>, context: AdminContext): NewSession {
  const seconds = body.expires_in === undefined ? context.sessionTtlSeconds : body.expires_in;
  return {
    vaultIds: body.vault_ids,
    environmentId: body.environment_id ?? null,
    title: body.title ?? null,
    metadata: body.metadata ?? {},
    caDirectory: body.ca_directory ?? CA_DIRECTORY_DEFAULT,
    expiresAt: expiryOf(seconds, context.clock.now()),
    denialLimit: body.denial_limit ?? null,
  };
}

export function registerSessionRoutes(app: AdminApp, context: AdminContext): void {
  /** The answer about a session; the token is given only where it was made just now. */
  const toWire = (session: Session, token: string | null = null): z.output<typeof SessionWire> =>
    sessionToWire(session, { nowMs: context.clock.now(), advertisedProxyUrl: context.advertisedProxyUrl(), token });
  registerSessionReads(app, context, toWire);
  registerSessionWrites(app, context, toWire);
  registerSessionSteps(app, context, toWire);
}

type ToWire = (session: Session, token?: string | null) => z.output<typeof SessionWire>;

function registerSessionReads(app: AdminApp, context: AdminContext, toWire: ToWire): void {
  const { sessions } = context.store;

  app.get(
    '/v1/sessions',
    {
      config: { access: SESSION_READERS },
      schema: {
        ...{ tags, operationId: 'listSessions', summary: 'List sessions, newest first' },
        querystring: ListQuery,
        response: answers(SessionPage, LIST_CODES),
      },
    },
    async (request) => {
      const page = await sessions.list(toPageQuery(request.query));
      return toPage(page, (session) => toWire(session));
    },
  );

  app.get(
    '/v1/sessions/:session_id',
    {
      config: { access: SESSION_READERS },
      schema: {
        ...{ tags, operationId: 'getSession', summary: 'Read a session; never its token' },
        params: SessionParams,
        response: answers(SessionWire, ['not_found']),
      },
    },
    async (request) => toWire(await sessions.get(request.params.session_id)),
  );
}

function registerSessionWrites(app: AdminApp, context: AdminContext, toWire: ToWire): void {
  const { sessions } = context.store;

  app.post(
    '/v1/sessions',
    {
      config: { access: SESSION_BROKERS },
      schema: {
        ...{ tags, operationId: 'createSession', summary: 'Mount vaults and start a session; shows its token once' },
        body: SessionCreate,
        response: answers(SessionWire, [
          ...BODY_CODES,
          ...(['mitm_disabled', 'credential_not_mountable', 'vault_archived', 'environment_archived'] as const),
          'not_found',
        ]),
      },
    },
    async (request) => {
      const { session, token } = await sessions.create(toNewSession(request.body, context), context.sessionSettings);
      context.recordWrite(request, { action: 'session.create', objectId: session.id });
      return toWire(session, token);
    },
  );

  app.post(
    '/v1/sessions/:session_id',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'updateSession', summary: 'Update title, metadata or expiry of a session' },
        params: SessionParams,
        body: SessionUpdate,
        response: answers(SessionWire, [...BODY_CODES, 'immutable_field', 'archived', 'not_found']),
      },
    },
    async (request) => {
      const { title, metadata, expires_in } = request.body;
      const expiresAt = expires_in === undefined ? undefined : expiryOf(expires_in, context.clock.now());
      const session = await sessions.update(request.params.session_id, definedOnly({ title, metadata, expiresAt }));
      context.recordWrite(request, { action: 'session.update', objectId: session.id });
      return toWire(session);
    },
  );
}

function registerSessionSteps(app: AdminApp, context: AdminContext, toWire: ToWire): void {
  const { sessions } = context.store;

  app.post(
    '/v1/sessions/:session_id/archive',
    {
      config: { access: SESSION_BROKERS },
      schema: {
        ...{ tags, operationId: 'archiveSession', summary: 'End a session; its live connections are cut' },
        params: SessionParams,
        body: EmptyBody,
        response: answers(SessionWire, [...BODY_CODES, 'not_found']),
      },
    },
    async (request) => {
      const session = await sessions.archive(request.params.session_id);
      context.recordWrite(request, { action: 'session.archive', objectId: session.id });
      return toWire(session);
    },
  );

  app.post(
    '/v1/sessions/:session_id/rotate_token',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'rotateSessionToken', summary: 'Give a session a new token; the old one ends at once' },
        params: SessionParams,
        body: EmptyBody,
        response: answers(SessionWire, [...BODY_CODES, 'archived', 'not_found']),
      },
    },
    async (request) => {
      const { session, token } = await sessions.rotateToken(request.params.session_id);
      context.recordWrite(request, { action: 'session.rotate_token', objectId: session.id });
      return toWire(session, token);
    },
  );

  app.post(
    '/v1/sessions/:session_id/resume',
    {
      config: { access: ADMIN_ONLY },
      schema: {
        ...{ tags, operationId: 'resumeSession', summary: 'Lift the suspension of a session' },
        params: SessionParams,
        body: EmptyBody,
        response: answers(SessionWire, [...BODY_CODES, 'session_not_suspended', 'archived', 'not_found']),
      },
    },
    async (request) => {
      const session = await sessions.resume(request.params.session_id);
      context.recordWrite(request, { action: 'session.resume', objectId: session.id });
      return toWire(session);
    },
  );
}
